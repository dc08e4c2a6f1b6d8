"""Virtual sockets: what a process sends and receives goes through the network of the simulation."""

import os
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

_ALWAYS_READABLE = os.open(os.devnull, os.O_RDONLY)
"""Where a program polls the descriptor of a virtual socket, it finds data and reads, which may block then."""


class Peer(Protocol):
    """The other end of a socket."""

    def receive(self, data: bytes) -> None:
        """Take what the process has sent."""

    def close(self) -> None:
        """Note that the process has closed the socket."""


class Notifier(Protocol):
    """The event loop of a socket."""

    def notify(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Call something in the next turn."""


class VirtualSocket:
    """The socket of a connected process: the part of ``socket.socket`` that our client uses."""

    def __init__(self, loop: Notifier, peer: Peer) -> None:
        """Be connected to a peer."""
        self._loop = loop
        self._peer = peer
        self._received: deque[bytes] = deque()
        self._end: OSError | bytes | None = None
        self._reader: Callable[[], object] | None = None
        self._writer: Callable[[], object] | None = None
        self.is_closed = False

    # What a process calls.

    def fileno(self) -> int:
        """Return a descriptor that can always be read."""
        return _ALWAYS_READABLE

    def recv(self, size: int) -> bytes:
        """Return what has arrived, up to a number of bytes; nothing at the end."""
        if self._received:
            data = self._received.popleft()
            if len(data) > size:
                self._received.appendleft(data[size:])
            return data[:size]
        if isinstance(self._end, OSError):
            raise self._end
        if self._end is None:
            raise BlockingIOError
        return self._end

    def send(self, data: bytes) -> int:
        """Send data; return how many bytes were sent, which is all of them."""
        if isinstance(self._end, OSError):
            raise self._end
        self._peer.receive(bytes(data))
        return len(data)

    def close(self) -> None:
        """Close the connection."""
        if not self.is_closed:
            self.is_closed = True
            self._peer.close()

    # What the event loop calls.

    def set_reader(self, callback: Callable[[], object] | None) -> None:
        """Call something as long as there is something to read."""
        self._reader = callback
        if self._is_readable:
            self._loop.notify(self._on_readable)

    def set_writer(self, callback: Callable[[], object] | None) -> None:
        """Call something soon: there is always room."""
        self._writer = callback
        self._loop.notify(self._on_writable)

    # What the network calls.

    def deliver(self, data: bytes) -> None:
        """Let data arrive."""
        if self._end is None and not self.is_closed:
            self._received.append(data)
            self._loop.notify(self._on_readable)

    def end(self, error: OSError | None = None) -> None:
        """Let the connection end, in order or with an error, which may lose what has arrived and was not read."""
        if self._end is None and not self.is_closed:
            self._end = b"" if error is None else error
            if error is not None:
                self._received.clear()
            self._loop.notify(self._on_readable)

    @property
    def _is_readable(self) -> bool:
        return bool(self._received) or self._end is not None

    def _on_readable(self) -> None:
        if self._reader is not None and self._is_readable and not self.is_closed:
            self._reader()
            self._loop.notify(self._read_on)

    def _read_on(self) -> None:
        """Call again, as long as data are left."""
        if self._is_readable:
            self._on_readable()

    def _on_writable(self) -> None:
        if self._writer is not None:
            self._writer()
