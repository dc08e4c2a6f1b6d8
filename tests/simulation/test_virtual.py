"""The virtual platform: time passes only where all wait, and processes can be stopped and killed between two turns."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.virtual.loop import VirtualLoop
from cpg_simulation.virtual.machine import Machine
from cpg_simulation.virtual.process import Process
from cpg_simulation.virtual.sockets import VirtualSocket

Main = Callable[[], Coroutine[Any, Any, object]]


class Host:
    """A machine with one process, and how that has ended."""

    def __init__(self) -> None:
        """Run nothing yet."""
        self.coordinator = Coordinator()
        self.machine = Machine(self.coordinator)
        self.ends: list[BaseException | None] = []
        random = Random(1)  # noqa: S311 - the same in each run
        self.process = Process(
            "test", self.coordinator, self.machine, random=random, on_exit=lambda _, error: self.ends.append(error)
        )

    def start(self, main: Main) -> None:
        """Start a thread of the process with a loop of its own."""

        def run() -> None:
            with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.process)) as runner:
                runner.run(main())

        self.process.add_thread(run).start()


@pytest.fixture
def host() -> Host:
    """Return a machine."""
    return Host()


def test_a_sleep_takes_virtual_time_only(host: Host) -> None:
    """An hour passes at once, and the clock of the loop shows it."""
    times: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        times.append(loop.time())
        await asyncio.sleep(3600)
        times.append(loop.time())

    host.start(main)
    host.coordinator.run(3599)
    assert len(times) == 1
    host.coordinator.run(3601)
    assert times[1] - times[0] == pytest.approx(3600, abs=0.001)
    assert host.ends == [None]


def test_threads_of_a_process_take_turns_in_the_order_of_time(host: Host) -> None:
    """Two loops wake each other across threads."""
    told: list[tuple[str, float]] = []
    woken: dict[str, tuple[asyncio.AbstractEventLoop, asyncio.Event]] = {}

    def thread(name: str, other: str) -> Main:
        async def main() -> None:
            mine = asyncio.Event()
            woken[name] = asyncio.get_running_loop(), mine
            if name == "first":
                await asyncio.sleep(1)
                loop, event = woken[other]
                loop.call_soon_threadsafe(event.set)
            await mine.wait()
            told.append((name, host.coordinator.now))
            loop, event = woken[other]
            loop.call_soon_threadsafe(event.set)

        return main

    host.start(thread("first", "second"))
    host.start(thread("second", "first"))
    host.coordinator.run(5)
    assert [name for name, _ in told] == ["second", "first"]
    assert all(1.0 <= at < 1.01 for _, at in told)


def test_a_stopped_process_runs_on_when_it_is_resumed(host: Host) -> None:
    """Timers that were due while it was stopped fire afterwards."""
    told: list[float] = []

    async def main() -> None:
        await asyncio.sleep(1)
        told.append(host.coordinator.now)

    host.start(main)
    host.coordinator.at(0.5, host.process.stop)
    host.coordinator.at(7.5, lambda: told.append(host.process.resume()))
    host.coordinator.run(10)
    assert told == [7.0, pytest.approx(7.5, abs=0.01)]


def test_nothing_of_a_killed_process_runs_again(host: Host) -> None:
    """Not even what it would do at its end."""
    told: list[str] = []

    async def main() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            told.append("cleaned up")

    host.start(main)
    host.coordinator.run(1)
    host.process.kill()
    host.coordinator.run(100)
    assert not told
    assert not host.ends


def test_the_monotonic_clock_stands_while_the_machine_is_suspended(host: Host) -> None:
    """The other one, by which leases are measured, counts on."""
    host.coordinator.run(10)
    before = host.machine.monotonic(), host.machine.boottime()
    host.coordinator.run(30)
    host.machine.count_suspension(20)
    assert host.machine.monotonic() == pytest.approx(before[0])
    assert host.machine.boottime() == pytest.approx(before[1] + 20)


def test_a_fast_clock_wakes_early(host: Host) -> None:
    """At twice the speed, ten seconds of the process are five of the coordinator."""
    told: list[float] = []

    async def main() -> None:
        await asyncio.sleep(10)
        told.append(host.coordinator.now)

    host.machine.change_rate(2)
    host.start(main)
    host.coordinator.run(20)
    assert told == [pytest.approx(5, abs=0.01)]


def test_tasks_have_their_places_in_a_set_by_number(host: Host) -> None:
    """The order in which a set of tasks is cancelled is the same in each run."""
    cancelled: list[int] = []

    async def wait(number: int) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise

    async def main() -> None:
        tasks = [asyncio.create_task(wait(number)) for number in range(20)]
        await asyncio.sleep(1)
        for task in {*tasks}:
            task.cancel()
        await asyncio.wait(tasks)

    host.start(main)
    host.coordinator.run(10)
    assert sorted(cancelled) == [*range(20)]
    again = Host()
    first, cancelled = cancelled, []
    again.start(main)
    again.coordinator.run(10)
    assert cancelled == first


class RecordingPeer:
    """The other end of a socket."""

    def __init__(self) -> None:
        """Have received nothing."""
        self.received: list[bytes] = []
        self.is_closed = False

    def receive(self, data: bytes) -> None:
        """Keep data."""
        self.received.append(data)

    def close(self) -> None:
        """Be closed."""
        self.is_closed = True


def test_a_socket_is_read_until_it_is_empty_and_ends_as_the_peer_says(host: Host) -> None:
    """Data that one call leaves are announced again; a reset loses what was not read."""
    got: list[bytes] = []
    peer, sockets = RecordingPeer(), list[VirtualSocket]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        connected = VirtualSocket(loop, peer)
        sockets.append(connected)
        with pytest.raises(BlockingIOError):
            connected.recv(10)
        loop.add_reader(connected, lambda: got.append(connected.recv(3)))
        connected.send(b"question")
        await asyncio.sleep(5)
        loop.remove_reader(connected)
        connected.deliver(b"lost")
        connected.end(ConnectionResetError())
        with pytest.raises(ConnectionResetError):
            connected.recv(3)
        connected.close()

    host.start(main)
    host.coordinator.at(1, lambda: sockets[0].deliver(b"answer"))
    host.coordinator.run(10)
    assert host.ends == [None]
    assert got == [b"ans", b"wer"]
    assert peer.received == [b"question"]
    assert peer.is_closed
