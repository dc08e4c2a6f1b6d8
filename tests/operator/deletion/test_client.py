"""The client of pykube-ng has the same credentials and authorities as our own connections."""

import datetime as dt
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from cpg_client.endpoint import Endpoint
from cpg_lab.certificates import issue
from cpg_lab.ports import LOOPBACK
from cpg_operator.deletion.client import open_client


class Server(ThreadingHTTPServer):
    """Records the tokens of requests."""

    def __init__(self) -> None:
        """Listen on a free port."""
        super().__init__((LOOPBACK, 0), Handler)
        self.tokens: list[str | None] = []


class Handler(BaseHTTPRequestHandler):
    """Answers every request."""

    server: Server

    def do_GET(self) -> None:  # as the base has it
        """Answer with 200."""
        self.server.tokens.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[Server]:
    """Run a server without TLS, to which a test may add it."""
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def endpoint(server: Server, tmp_path: Path) -> Endpoint:
    """Add TLS to the server, with its own authority."""
    made = issue(tmp_path, now=dt.datetime.now(dt.UTC), service_ip="10.0.0.1")  # noqa: TID251  # TLS reads the clock
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.server, made.server_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return Endpoint(server=f"https://{LOOPBACK}:{server.server_port}", ca=made.ca)


def status_of(endpoint: Endpoint, token: str | None = "secret") -> int:  # noqa: S107  # it opens nothing
    """Send a request; return the status."""
    with open_client(endpoint, token) as client:
        status: int = client.get(version="v1", url="pods").status_code
        return status


def test_the_token_is_sent_to_a_server_with_the_right_certificate(
    server: Server, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the authority in a file or in memory; proxies in the environment are ignored."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert status_of(endpoint) == 200
    assert isinstance(endpoint.ca, Path)
    assert status_of(replace(endpoint, ca=endpoint.ca.read_bytes()), None) == 200
    assert server.tokens == ["Bearer secret", None]


def test_no_other_server_gets_the_token(server: Server, endpoint: Endpoint) -> None:
    """Another authority or name is refused, unless verification is switched off."""
    with pytest.raises(requests.exceptions.SSLError):
        status_of(replace(endpoint, ca=None))
    with pytest.raises(requests.exceptions.SSLError):
        status_of(replace(endpoint, tls_server_name="elsewhere"))
    assert server.tokens == []
    assert status_of(replace(endpoint, tls_server_name="kubernetes")) == 200
    with pytest.warns(Warning, match="Unverified"):
        assert status_of(replace(endpoint, ca=None, verify=False)) == 200


def test_no_token_is_sent_without_tls(server: Server) -> None:
    """As in our own connections."""
    assert status_of(Endpoint(server=f"http://{LOOPBACK}:{server.server_port}")) == 200
    assert server.tokens == [None]
