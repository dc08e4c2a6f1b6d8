"""Carry connections from one place to another: `relaying.py FROM TO`, where a place is `HOST:PORT` or a socket's path.

A real node of the lab has a network of its own, in which nothing but its own loopback is. Two of these, with a socket
in the file system between them, are its only way out: to the API server.
"""

import asyncio
import contextlib
import sys

_CHUNK = 1 << 16


async def relay(source: str, target: str) -> None:
    """Listen at one place, and connect whoever comes with the other, for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await _connected(target)
            await asyncio.gather(_carry(reader, back), _carry(there, writer))
        writer.close()

    if "/" in source:
        server = await asyncio.start_unix_server(serve, source)
    else:
        host, _, port = source.rpartition(":")
        server = await asyncio.start_server(serve, host, int(port))
    await server.serve_forever()


async def _connected(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if "/" in target:
        return await asyncio.open_unix_connection(target)
    host, _, port = target.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry what comes until it ends, and pass the end on."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(relay(*sys.argv[1:]))
