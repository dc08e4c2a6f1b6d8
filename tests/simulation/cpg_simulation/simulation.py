"""One simulation: the processes, the network, the API server, the world and the faults of one night."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from cpg_operator.settings import Settings as OperatorSettings
from cpg_scheduler.settings import SchedulerSettings
from cpg_simulation import programs
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.values import Write
from cpg_simulation.faults.night_faults import NightFaults
from cpg_simulation.network import Network
from cpg_simulation.nights.plan import Night
from cpg_simulation.virtual import install
from cpg_simulation.virtual.coordinator import Coordinator
from cpg_simulation.virtual.machine import Machine
from cpg_simulation.virtual.process import Process
from cpg_simulation.world.world import World

RESTART_SECONDS = (0.5, 1.0, 2.0, 5.0)
"""The seconds until an ended process starts again, by how often it has ended."""
SECONDS_TO_REPLACE = 5.0
"""The seconds until a process that was asked to end is replaced by another pod: a standby takes its lease before."""

LOOKS = (35.0, 60.0)
"""The seconds of the calm after which a night may end, if everything is in order already."""


@dataclass
class LogEntry:
    """A line that a process has logged."""

    time: float
    process: str
    fields: dict[str, Any]


@dataclass
class Exit:
    """The end of a process."""

    time: float
    process: str
    error: BaseException | None


@dataclass
class _Program:
    """A program that is started again whenever it ends."""

    main: programs.Main
    machine: Machine
    process: Process | None = None
    starts: int = 0


@dataclass
class Record:
    """What has happened, for the checks."""

    log: list[LogEntry] = field(default_factory=list)
    exits: list[Exit] = field(default_factory=list)


class Simulation:
    """Plays one night."""

    def __init__(self, night: Night) -> None:
        """Be ready to play."""
        self.night = night
        self.random = Random(f"simulation {night.seed}")  # noqa: S311 - the same for the same seed
        self.coordinator = Coordinator()
        self.record = Record()
        self.server_machine = Machine(self.coordinator)
        self.server = ApiServer(
            now=self.server_machine.wall,
            new_uid=self._new_uid,
            native=night.flavour == "native",
            custom=night.flavour == "crd",
        )
        mains = {f"scheduler-{number}": programs.scheduler_main(_scheduler_settings(night)) for number in range(2)}
        for number in range(night.operators):
            mains[f"operator-{number}"] = programs.operator_main(_operator_settings(night))
        self._programs = {name: _Program(main, Machine(self.coordinator)) for name, main in mains.items()}
        self.on_end: Callable[[str], None] = lambda _: None
        """Called when a process has ended, for whatever reason."""
        self.faults = NightFaults(night)
        self.network = Network(
            self.coordinator,
            self.server,
            self.server_machine,
            faults=self.faults.requests,
            random=self._child("network"),
        )
        self.world = World(night, self.coordinator, self.server, self._child("world"))
        self.faults.connect(self.coordinator, self.network, self.server, self.world, self)
        self._digest = hashlib.blake2b(digest_size=8)
        self.server.on_write.append(self._digest_write)

    def play(self, is_settled: Callable[[], bool]) -> None:
        """Play the night until everything is in order during the calm, at most to its end."""
        install.replace_sockets(self.network.dial)
        programs.install(self._take_log)
        for name in self._programs:
            self.coordinator.after(self.random.random(), self._start, name)
        for seconds in (*(first for first in LOOKS if first < self.night.calm), self.night.calm):
            self.coordinator.run(self.night.seconds + seconds)
            if is_settled():
                return

    @property
    def digest(self) -> str:
        """Return a digest of all that was written, and when."""
        return self._digest.hexdigest()

    def process(self, name: str) -> Process | None:
        """Return the process that runs under a name, if one does."""
        found = self._programs[name].process
        return found if found is not None and found.is_alive else None

    def machine(self, name: str) -> Machine:
        """Return the machine of a process."""
        return self._programs[name].machine

    def _start(self, name: str) -> None:
        program = self._programs[name]
        if program.process is not None and program.process.is_alive:
            return
        program.starts += 1
        program.process = Process(
            name,
            self.coordinator,
            program.machine,
            random=self._child(f"{name} {program.starts}"),
            on_exit=self._on_exit,
        )
        program.process.start(program.main)

    def _on_exit(self, process: Process, error: BaseException | None) -> None:
        self.record.exits.append(Exit(self.coordinator.now, process.name, error))
        self.network.close_all(process)
        self.on_end(process.name)
        if error is None:
            self.coordinator.after(SECONDS_TO_REPLACE, self._start, process.name)
        else:
            self.start_again(process.name)

    @property
    def living(self) -> list[str]:
        """The processes that run."""
        return [name for name in self._programs if self.process(name) is not None]

    def kill(self, name: str) -> None:
        """Kill a process; what it has sent still arrives."""
        process = self.process(name)
        if process is not None:
            process.kill()
            self.network.close_all(process)
            self.on_end(name)

    def start_again(self, name: str) -> None:
        """Start a process that has ended, as a kubelet does: at once at first, later with a back-off."""
        starts = min(self._programs[name].starts, len(RESTART_SECONDS)) - 1
        self.coordinator.after(RESTART_SECONDS[starts], self._start, name)

    def _take_log(self, line: programs.LogLine) -> None:
        self.record.log.append(LogEntry(self.coordinator.now, *line))

    def _digest_write(self, write: Write) -> None:
        subject = f"{write.resource} {write.namespace}/{write.name}"
        text = f"{self.coordinator.now:.6f} {write.user} {write.verb} {subject} {write.new!r}\n"
        self._digest.update(text.encode())

    def _new_uid(self) -> str:
        bits = self._child_uid.getrandbits(64)
        return f"{bits:016x}"

    @property
    def _child_uid(self) -> Random:
        if not hasattr(self, "_uids"):
            self._uids = self._child("uids")
        return self._uids

    def _child(self, purpose: str) -> Random:
        return Random(f"{self.night.seed} {purpose}")  # noqa: S311 - the same for the same seed


def _scheduler_settings(night: Night) -> SchedulerSettings:
    return SchedulerSettings(api=night.flavour, listen="", debug_port=0)


def _operator_settings(night: Night) -> OperatorSettings:
    return OperatorSettings(api=night.flavour, listen="")
