"""Readiness checks, from blocking code and from within an event loop."""

import http.server
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from cpg_lab import ports, probing


class Answers(http.server.BaseHTTPRequestHandler):
    """Healthy at one path, not ready at another."""

    codes: ClassVar = {"/healthz": 200, "/readyz": 500}

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(self.codes.get(self.path, 404))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """Serve on loopback."""
    with http.server.ThreadingHTTPServer((ports.LOOPBACK, 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{ports.LOOPBACK}:{server.server_port}"
        server.shutdown()
        thread.join()


def check(url: str, path: str) -> str | None:
    """Check without certificates or tokens."""
    return probing.unready_reason(url, path, ca_file=None, token=None)


def test_success_is_ready(url: str) -> None:
    """There is no reason why not."""
    assert check(url, "/healthz") is None


def test_an_error_status_is_the_reason(url: str) -> None:
    """With the answer's text."""
    assert (check(url, "/readyz") or "").startswith("500")


def test_a_refused_connection_is_the_reason() -> None:
    """As usual during the start."""
    assert check(f"http://{ports.LOOPBACK}:{ports.free_port()}", "/healthz")


async def test_it_works_within_an_event_loop(url: str) -> None:
    """A coroutine can call the lab's blocking code."""
    assert check(url, "/healthz") is None
