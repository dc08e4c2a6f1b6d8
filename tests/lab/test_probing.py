"""Asking whether something is ready, from blocking code and from within an event loop."""

import http.server
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from cpg_lab import ports, probing


class Answers(http.server.BaseHTTPRequestHandler):
    """Healthy at one path, not yet at another."""

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


def ask(url: str, path: str) -> str | None:
    """Ask without certificates or tokens."""
    return probing.unready_reason(url, path, ca_file=None, token=None)


def test_a_good_answer_is_no_reason(url: str) -> None:
    """What answers well is ready."""
    assert ask(url, "/healthz") is None


def test_a_refusal_is_a_reason(url: str) -> None:
    """What answers, but not well, is not ready, and its answer says why."""
    assert (ask(url, "/readyz") or "").startswith("500")


def test_silence_is_a_reason() -> None:
    """Nobody listening is the usual reason at the start."""
    assert ask(f"http://{ports.LOOPBACK}:{ports.free_port()}", "/healthz")


async def test_it_works_within_an_event_loop(url: str) -> None:
    """Blocking code of the lab can be called from a coroutine, where a loop runs already."""
    assert ask(url, "/healthz") is None
