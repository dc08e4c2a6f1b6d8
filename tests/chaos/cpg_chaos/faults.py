"""The faults: each kind is one function, and a deck of all kinds is shuffled by the seed."""

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Iterator

from cpg_chaos.history import History
from cpg_chaos.programs import Program
from cpg_chaos.testbed import PARTS, Testbed
from cpg_client.resources import LEASES

SECONDS_BETWEEN_FAULTS = (0.5, 5.0)
MOST_AT_ONCE = 3


class Faults:
    """Inject faults at random moments; those that stop everything come half as often."""

    def __init__(self, testbed: Testbed, history: History, seed: int) -> None:
        """Inject nothing yet."""
        self._testbed, self._history = testbed, history
        self._random = random.Random(seed)  # noqa: S311  # a run can be repeated
        self._at_once = asyncio.Semaphore(MOST_AT_ONCE)
        self.kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill scheduler": lambda: self._end("scheduler", signal.SIGKILL),
            "stop scheduler": lambda: self._end("scheduler", signal.SIGTERM),
            "suspend scheduler": lambda: self._suspend("scheduler"),
            "kill operator": lambda: self._end("operator", signal.SIGKILL),
            "stop operator": lambda: self._end("operator", signal.SIGTERM),
            "suspend operator": lambda: self._suspend("operator"),
            "cut connections": self._cut,
            "refuse connections": self._refuse,
            "stall connections": self._stall,
        }
        self.plane_kinds: dict[str, Callable[[], Awaitable[None]]] = {
            "kill API server": lambda: self._restart("apiserver"),
            "suspend API server": lambda: self._suspend_component("apiserver"),
            "kill etcd": lambda: self._restart("etcd"),
            "suspend etcd": lambda: self._suspend_component("etcd"),
            "kill etcd and API server": lambda: self._restart("apiserver", "etcd"),
            "kill every replica": self._kill_all,
        }
        self._deck, self._injected = self._shuffled(), 0

    async def inject(self, seconds: float) -> None:
        """Inject faults for so long, and in the first call each kind at least once; return when all have ended."""
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        async with asyncio.TaskGroup() as tasks:
            while clock() < end or self._injected < len(self.kinds | self.plane_kinds):
                await self._at_once.acquire()
                self._injected += 1
                tasks.create_task(self._inject_one(next(self._deck)))
                await asyncio.sleep(self._random.uniform(*SECONDS_BETWEEN_FAULTS))

    async def _inject_one(self, kind: str) -> None:
        try:
            await (self.kinds | self.plane_kinds)[kind]()
        finally:
            self._at_once.release()

    def _shuffled(self) -> Iterator[str]:
        """Yield all kinds, then once more those that leave the API server alone, and so on."""
        while True:
            for kinds in ([*self.kinds, *self.plane_kinds], list(self.kinds)):
                yield from self._random.sample(kinds, len(kinds))

    def _replica(self, part: str = "") -> Program:
        part = part or self._random.choice(PARTS)
        name = f"kube-cpg-{part}"
        leases = (one for one in self._history.objects[LEASES].values() if one["metadata"]["name"] == name)
        holder = next((one["spec"].get("holderIdentity") or "" for one in leases), "")
        return self._testbed.choose(part, holder, self._random)

    async def _end(self, part: str, number: signal.Signals) -> None:
        program = self._replica(part)
        with self._testbed.record.fault("kill" if number == signal.SIGKILL else "stop", program.name):
            program.send(number)
            await asyncio.sleep(self._random.uniform(0, 1))

    async def _kill_all(self) -> None:
        with self._testbed.record.fault("kill", "every replica"):
            for program in self._testbed.programs:
                program.send(signal.SIGKILL)
            await asyncio.sleep(self._random.uniform(0, 1))

    async def _suspend(self, part: str) -> None:
        program = self._replica(part)
        process = program.process
        with self._testbed.record.fault("suspend", program.name):
            program.send(signal.SIGSTOP)
            await asyncio.sleep(self._random.choice((0.3, 1.5, 6.0, 12.0)))
            if program.process is process:
                program.send(signal.SIGCONT)

    async def _restart(self, *names: str) -> None:
        async with self._testbed.plane:
            with self._testbed.record.fault("kill", " and ".join(names)):
                await self._testbed.restart(*names, down=self._random.choice((0.0, 0.5, 2.0, 5.0)))

    async def _suspend_component(self, name: str) -> None:
        async with self._testbed.plane:
            with self._testbed.record.fault("suspend", name):
                self._testbed.signal_component(name, signal.SIGSTOP)
                try:
                    await asyncio.sleep(self._random.choice((0.3, 1.5, 4.0, 8.0)))
                finally:
                    self._testbed.signal_component(name, signal.SIGCONT)

    async def _cut(self) -> None:
        program = self._replica()
        with self._testbed.record.fault("cut connections of", program.name):
            for _ in range(self._random.randint(1, 5)):
                program.relay.cut()
                await asyncio.sleep(self._random.uniform(0, 0.5))

    async def _refuse(self) -> None:
        program = self._replica()
        with self._testbed.record.fault("refuse connections of", program.name):
            program.relay.is_refusing = True
            program.relay.cut()
            await asyncio.sleep(self._random.choice((0.5, 2.0, 6.0, 12.0)))
            program.relay.is_refusing = False

    async def _stall(self) -> None:
        program = self._replica()
        with self._testbed.record.fault("stall connections of", program.name):
            program.relay.flows.clear()
            await asyncio.sleep(self._random.choice((0.5, 2.0, 6.0, 12.0)))
            program.relay.flows.set()
