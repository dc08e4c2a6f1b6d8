"""Relays copy connections in both directions, to their end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from cpg_lab import ports, relay


@contextlib.asynccontextmanager
async def relays(*ways: tuple[str, str]) -> AsyncIterator[None]:
    """Run relays for as long as the block lasts."""
    tasks = [asyncio.create_task(relay.relay(*way)) for way in ways]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as soon as a server listens."""
    while True:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection(host, port)
        await asyncio.sleep(0.01)


async def test_two_relays_reach_a_server_over_a_socket(tmp_path: Path) -> None:
    """Request and answer pass, however long they are."""

    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper() * 10_000)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(shout, ports.LOOPBACK, ports.free_port())
    there, here, way = server.sockets[0].getsockname()[1], ports.free_port(), str(tmp_path / "way.sock")
    async with server, relays((way, f"{ports.LOOPBACK}:{there}"), (f"{ports.LOOPBACK}:{here}", way)):
        answer = b""
        while not answer:  # until both listen
            reader, writer = await connected(ports.LOOPBACK, here)
            writer.write(b"hello\n")
            answer = await reader.read(-1)
            writer.close()
        assert answer == b"HELLO\n" * 10_000


async def test_a_connection_without_a_server_ends(tmp_path: Path) -> None:
    """The client sees the end of the stream."""
    here = ports.free_port()
    async with relays((f"{ports.LOOPBACK}:{here}", str(tmp_path / "nobody.sock"))):
        reader, writer = await connected(ports.LOOPBACK, here)
        assert await reader.read(-1) == b""
        writer.close()
