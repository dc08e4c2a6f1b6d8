"""Kopf in its thread: it ends with us, and we with it."""

import asyncio
import threading
from typing import Any

import kopf
import pytest

from cpg_operator.embedding import KopfEndedError, run_kopf


async def run(monkeypatch: pytest.MonkeyPatch, operator: Any) -> asyncio.Task[None]:  # noqa: ANN401  # Kopf's own
    """Run what stands in for Kopf."""
    monkeypatch.setattr(kopf, "operator", operator)
    task = asyncio.create_task(run_kopf(kopf.OperatorRegistry(), kopf.OperatorSettings(), ("b", "a")))
    await asyncio.sleep(0.05)
    return task


async def test_kopf_is_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """When we are cancelled; it gets the namespaces, and a loop and a thread of its own."""
    seen: dict[str, Any] = {}

    async def operator(**given: Any) -> None:  # Kopf's own
        seen.update(given, thread=threading.current_thread().name)
        await asyncio.to_thread(given["stop_flag"].wait)
        seen["ended"] = True

    task = await run(monkeypatch, operator)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (seen["namespaces"], seen["clusterwide"], seen["thread"], seen["ended"]) == (["a", "b"], False, "kopf", True)


async def test_kopf_does_not_end_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether by a mistake or without one."""

    async def failing(**_: Any) -> None:  # Kopf's own
        raise ValueError("broken")

    async def ending(**_: Any) -> None:  # Kopf's own
        return

    for operator, words in ((failing, "broken"), (ending, "without an error")):
        task = await run(monkeypatch, operator)
        with pytest.raises(KopfEndedError, match=words):
            await task


async def test_kopfs_end_is_not_held_up_by_what_waits_to_be_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves a thread behind that waits for the word to end, which is ours to give."""

    async def failing(**given: Any) -> None:  # Kopf's own
        waiting = asyncio.get_running_loop().run_in_executor(None, given["stop_flag"].wait)
        await asyncio.wait((waiting,), timeout=0)
        raise ValueError("broken")

    task = await run(monkeypatch, failing)
    async with asyncio.timeout(5):
        with pytest.raises(KopfEndedError, match="broken"):
            await task
