"""Binds and evictions go before conditions and events."""

import asyncio
import contextlib

from cpg_scheduler.write_gate import WriteGate


async def test_the_gate_opens_when_the_last_urgent_write_has_ended() -> None:
    """Conditions wait for all binds in flight, and for none when there are none."""
    gate = WriteGate()
    await asyncio.wait_for(gate.wait_open(), 1)
    gate.enter(2)
    waiting = asyncio.create_task(gate.wait_open())
    gate.leave()
    await asyncio.sleep(0)
    assert not waiting.done()
    with gate.urgent():
        gate.leave()
        await asyncio.sleep(0)
        assert not waiting.done()
    await asyncio.wait_for(waiting, 1)


async def test_the_writes_of_one_object_are_waited_for() -> None:
    """Whether or not they succeed; those of other objects are not."""
    gate = WriteGate()
    with contextlib.suppress(ValueError), gate.writing("a"):
        waiting = asyncio.create_task(gate.wait_written({"a", "c"}))
        await asyncio.wait_for(gate.wait_written({"b"}), 1)
        assert not waiting.done()
        assert (gate.is_writing({"a", "b"}), gate.is_writing({"b"})) == (True, False)
        raise ValueError
    await asyncio.wait_for(waiting, 1)
    await asyncio.wait_for(gate.wait_written({"a", "c"}), 1)
