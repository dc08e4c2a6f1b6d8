"""Requests to an API server from blocking code."""

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from cpg_client.errors import ApiError
from cpg_lab import ports
from cpg_lab.access import Access
from cpg_lab.blocking_client import BlockingClient


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers with the request, with 404, or with 403."""

    codes = {"/none": 404, "/secret": 403}  # noqa: RUF012  # nobody changes it

    def _answer(self) -> None:
        """Answer."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        answer = {"request": f"{self.command} {self.path}", "type": self.headers.get("Content-Type"), "body": body}
        data = msgspec.json.encode(answer)
        self.send_response(self.codes.get(self.path, 200))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer  # noqa: N815  # as the library looks for them

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[BlockingClient]:
    """Return a client of a server on loopback."""
    with http.server.ThreadingHTTPServer((ports.LOOPBACK, 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://{ports.LOOPBACK}:{server.server_port}"
        nowhere = tmp_path / "nowhere"
        with BlockingClient(
            Access(url=url, ca_file=nowhere, token="", kubeconfig=nowhere, kubectl_path=nowhere)
        ) as asking:
            yield asking
        server.shutdown()
        thread.join()


def test_each_method_sends_its_request(client: BlockingClient) -> None:
    """And returns the decoded answer."""
    assert client.get("/one")["request"] == "GET /one"
    assert client.create("/all", {"a": 1})["body"] == '{"a":1}'
    assert client.merge("/one/status", {})["type"] == "application/merge-patch+json"
    client.delete("/one")
    client.delete("/one", grace=0)


async def test_it_works_inside_a_running_event_loop(client: BlockingClient) -> None:
    """Tests of the scheduler are coroutines."""
    assert client.find("/one") == {"request": "GET /one", "type": None, "body": ""}


def test_find_returns_none_for_a_missing_object(client: BlockingClient) -> None:
    """Any other error is raised, and so is 404 by the other methods."""
    assert client.find("/none") is None
    with pytest.raises(ApiError):
        client.get("/none")
    with pytest.raises(ApiError) as refused:
        client.find("/secret")
    assert refused.value.is_forbidden
