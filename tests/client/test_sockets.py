"""Options of sockets, and how many of them there may be."""

import resource
import socket

import pytest

from cpg_client.sockets import MAX_FILES, configure_socket, raise_file_limit


def test_the_kernel_probes_idle_connections() -> None:
    """A dead peer is detected within half a minute: after 15 seconds, three times every 5."""
    with socket.socket() as made:
        configure_socket(made)
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) == 5
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 3


def test_a_system_may_lack_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown options are skipped."""
    monkeypatch.delattr(socket, "TCP_KEEPIDLE")
    with socket.socket() as made:
        configure_socket(made)
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 1 << 20), MAX_FILES),
        ((1024, 4096), 4096),
        ((1024, resource.RLIM_INFINITY), MAX_FILES),
        ((99_999,) * 2, 99_999),
    ],
)
def test_the_limit_of_open_files_is_raised(
    monkeypatch: pytest.MonkeyPatch, before: tuple[int, int], after: int
) -> None:
    """Hundreds of watches need more than the usual 1024; a limit is never lowered."""
    made: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: before)
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: made.append(limits))
    raise_file_limit()
    assert made == [(after, before[1])]


def test_a_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some systems report a higher limit than they permit."""

    def refuse(*_: object) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_file_limit()
