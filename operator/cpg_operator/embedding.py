"""Kopf inside our process: in a thread with an event loop of its own.

Kopf takes the loop that it runs in for its own: at its end it cancels every task that was started after it, and on the
main thread it takes the signals. In a thread of its own it can do neither to us; what it hears is handed over to our
loop. When it ends without having been told to, that is told, and it can be run again.
"""

import asyncio
import contextlib
import threading
from collections.abc import Collection

import kopf
from kopf._core.engines.peering import Identity

IDENTITY = Identity("cpg-operator")
"""Nobody reads it: a lease makes the leader. Left open, Kopf would ask for the user's name, which a container lacks."""

PATIENCE = 10.0
"""Seconds that Kopf is given to end."""


class KopfEndedError(RuntimeError):
    """Kopf has ended by itself."""


async def run_kopf(
    registry: kopf.OperatorRegistry, settings: kopf.OperatorSettings, namespaces: Collection[str]
) -> None:
    """Run Kopf until cancelled; raise if it ends before that."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    stop = threading.Event()

    def tell(error: BaseException | None) -> None:
        if not ended.done():
            ended.set_exception(KopfEndedError(repr(error) if error else "without an error"))

    async def operate() -> None:
        try:
            await kopf.operator(
                registry=registry,
                settings=settings,
                namespaces=sorted(namespaces),
                clusterwide=not namespaces,
                standalone=True,
                identity=IDENTITY,
                stop_flag=stop,
            )
        finally:
            stop.set()  # a thread of Kopf's waits for it, and the end of its loop for that thread

    def work() -> None:
        error: BaseException | None = None
        try:
            asyncio.run(operate())
        except BaseException as problem:  # noqa: BLE001  # whatever it is, the other loop has to hear of it
            error = problem
        with contextlib.suppress(RuntimeError):  # the other loop may have closed
            loop.call_soon_threadsafe(tell, error)

    thread = threading.Thread(target=work, name="kopf", daemon=True)
    thread.start()
    try:
        await ended
    finally:
        stop.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await asyncio.to_thread(thread.join, PATIENCE)
