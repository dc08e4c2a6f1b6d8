"""Options of sockets."""

import socket

import pytest

from cpg_client.sockets import configure_socket


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
