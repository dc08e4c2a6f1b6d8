"""The inbox of the scheduling loop."""

import asyncio

from cpg_scheduler.inbox import EventInbox


async def test_events_arrive_in_order_and_wake_the_loop() -> None:
    """The oldest event comes first, and an event is taken once."""
    inbox = EventInbox()
    waiting = asyncio.create_task(inbox.wait())
    await asyncio.sleep(0)
    inbox.put("first")
    inbox.put("second")
    await asyncio.wait_for(waiting, 1)
    assert (list(inbox.take()), len(inbox)) == (["first", "second"], 0)


async def test_an_event_that_was_not_taken_keeps_the_loop_awake() -> None:
    """Clearing the wake-up cannot lose an event that arrived meanwhile."""
    inbox = EventInbox()
    inbox.put("late")
    inbox.clear()
    await asyncio.wait_for(inbox.wait(), 1)
    assert list(inbox.take()) == ["late"]
    inbox.clear()
    sleeping = asyncio.create_task(inbox.wait())
    await asyncio.sleep(0)
    assert not sleeping.done()
    inbox.wake()
    await asyncio.wait_for(sleeping, 1)
