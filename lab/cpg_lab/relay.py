"""Relay connections from one address to another: `relay.py FROM TO`; an address is `HOST:PORT` or a socket's path.

A real node of the lab has a network of its own with nothing but a loopback. Two relays, with a socket in the file
system between them, are its only connection: to the API server.
"""

import asyncio
import contextlib
import sys

_CHUNK = 1 << 16


async def relay(source: str, target: str) -> None:
    """Listen on one address, and connect each client to the other, for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            there, back = await _connect(target)
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        writer.close()

    if "/" in source:
        server = await asyncio.start_unix_server(serve, source)
    else:
        host, _, port = source.rpartition(":")
        server = await asyncio.start_server(serve, host, int(port))
    await server.serve_forever()


async def _connect(target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if "/" in target:
        return await asyncio.open_unix_connection(target)
    host, _, port = target.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until the end of the stream, then close the other side."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    with contextlib.suppress(OSError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(relay(*sys.argv[1:]))
