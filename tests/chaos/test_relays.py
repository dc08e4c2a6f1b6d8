"""A relay forwards bytes, and can cut, refuse and stall its connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from cpg_chaos.relays import Relay
from cpg_lab.ports import LOOPBACK

STALL_SECONDS = 0.1


@pytest.fixture
async def relay() -> AsyncIterator[Relay]:
    """Return a relay to a server that sends back what it gets."""
    handlers = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, LOOPBACK, 0)
    found = Relay(server.sockets[0].getsockname()[1])
    await found.open()
    yield found
    found.close()
    server.close()
    await asyncio.gather(*filter(None, handlers))
    await asyncio.sleep(0)  # the transports close in the next turn of the loop


async def connect(relay: Relay) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return a connection over the relay."""
    return await asyncio.open_connection(LOOPBACK, int(relay.url.rpartition(":")[2]))


async def test_bytes_pass_until_the_connection_is_cut(relay: Relay) -> None:
    """An aborted connection is reset, and a new one works."""
    for _ in range(2):
        reader, writer = await connect(relay)
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        relay.cut()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()


async def test_no_byte_passes_while_connections_are_stalled(relay: Relay) -> None:
    """The bytes arrive later, and the client sees no error."""
    reader, writer = await connect(relay)
    relay.flows.clear()
    writer.write(b"one")
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(reader.readexactly(3), STALL_SECONDS)
    relay.flows.set()
    assert await reader.readexactly(3) == b"one"
    writer.close()


async def test_connections_are_refused(relay: Relay) -> None:
    """They are closed before any byte."""
    relay.is_refusing = True
    reader, writer = await connect(relay)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()
