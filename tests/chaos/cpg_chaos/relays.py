"""The connections of one process to the API server, which a fault can cut, refuse or stall."""

import asyncio
import contextlib

from cpg_lab.ports import LOOPBACK

CHUNK = 1 << 16


class Relay:
    """Forwards bytes to the port of the API server."""

    def __init__(self, target: int) -> None:
        """Forward nothing yet."""
        self.is_refusing = False
        self.flows = asyncio.Event()
        """While it is not set, connections stay open and no byte passes."""
        self.flows.set()
        self.url = ""
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.url = f"https://{LOOPBACK}:{self._server.sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """Stop listening, and cut all connections."""
        if self._server is not None:
            self._server.close()
        self.is_refusing = True
        self.cut()

    def cut(self) -> None:
        """Abort all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            writer.transport.abort()
            return
        with contextlib.suppress(OSError, asyncio.CancelledError):  # cancelled at the end of the run
            there, back = await asyncio.open_connection(LOOPBACK, self._target)
            both = {writer, back}
            self._writers |= both
            try:
                await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
            finally:
                self._writers -= both
        writer.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy bytes until the end of the stream, then close the other side."""
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                await self.flows.wait()
                writer.write(chunk)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()
