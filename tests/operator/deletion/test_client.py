"""How pykube-ng is led to a server: as our own connections are."""

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
from cpg_operator.deletion.client import client_of


class Server(ThreadingHTTPServer):
    """Notes who asks."""

    def __init__(self) -> None:
        """Listen at a free port."""
        super().__init__((LOOPBACK, 0), Handler)
        self.tokens: list[str | None] = []


class Handler(BaseHTTPRequestHandler):
    """Answers everything."""

    server: Server

    def do_GET(self) -> None:  # as the base has it
        """Answer."""
        self.server.tokens.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def server() -> Iterator[Server]:
    """Run a server without TLS, until the test gives it some."""
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def endpoint(server: Server, tmp_path: Path) -> Endpoint:
    """Give the server TLS by an authority of its own."""
    made = issue(tmp_path, now=dt.datetime.now(dt.UTC), service_ip="10.0.0.1")  # noqa: TID251  # TLS looks at the clock
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(made.server, made.server_key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    return Endpoint(server=f"https://{LOOPBACK}:{server.server_port}", ca=made.ca)


def ask(endpoint: Endpoint, token: str | None = "secret") -> int:  # noqa: S107  # it opens nothing
    """Ask something; return the status."""
    with client_of(endpoint, token) as client:
        status: int = client.get(version="v1", url="pods").status_code
        return status


def test_the_token_goes_to_the_server_that_the_authority_vouches_for(
    server: Server, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a file or from memory; the environment's proxies are nobody's business."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    assert ask(endpoint) == 200
    assert isinstance(endpoint.ca, Path)
    assert ask(replace(endpoint, ca=endpoint.ca.read_bytes()), None) == 200
    assert server.tokens == ["Bearer secret", None]


def test_nobody_else_gets_it(server: Server, endpoint: Endpoint) -> None:
    """Another authority's word does not count, nor another name; who wants neither says so."""
    with pytest.raises(requests.exceptions.SSLError):
        ask(replace(endpoint, ca=None))
    with pytest.raises(requests.exceptions.SSLError):
        ask(replace(endpoint, tls_server_name="elsewhere"))
    assert server.tokens == []
    assert ask(replace(endpoint, tls_server_name="kubernetes")) == 200
    with pytest.warns(Warning, match="Unverified"):
        assert ask(replace(endpoint, ca=None, verify=False)) == 200


def test_no_token_goes_over_an_open_line(server: Server) -> None:
    """As in our own connections."""
    assert ask(Endpoint(server=f"http://{LOOPBACK}:{server.server_port}")) == 200
    assert server.tokens == [None]
