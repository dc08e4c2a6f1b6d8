"""Configure TCP sockets: no delay, keep-alive probes, and enough of them.

A healthy watch may be silent for a minute, so silence alone detects a dead peer late. The kernel's probes detect it
within half a minute, on idle connections and on streams, at no measurable cost. The time-outs of the connection handle
a server that hangs while its machine answers.
"""

import contextlib
import resource
import socket

MAX_FILES = 1 << 16
"""Open files that a process may have, if the system permits them."""
_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""Seconds, seconds, number of probes, milliseconds until sent bytes must be acknowledged. Some systems lack some."""


def raise_file_limit() -> None:
    """Allow more open files, as Go programs do: each watch of each namespace is a socket.

    The usual limit of 1024 is for programs that call ``select``.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES))
    with contextlib.suppress(ValueError, OSError):  # some systems report more than they permit
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def configure_socket(connected: socket.socket) -> None:
    """Disable Nagle's algorithm and enable keep-alive probes."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
