"""Sockets that wait with nothing, and notice a dead peer.

A watch may be silent for a minute and be well, so silence tells late that the other machine has gone. The
kernel's own probes tell within half a minute, on idle connections and on streams alike, and cost nothing that
could be measured. A server that hangs while its machine answers is what the time-outs above are for.
"""

import socket

_KEEPALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""Seconds, seconds, probes, and the milliseconds for sent bytes to be acknowledged; not every system has all four."""


def configure_socket(connected: socket.socket) -> None:
    """Have the kernel send at once, and look after a connection."""
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        option = getattr(socket, name, None)
        if option is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
