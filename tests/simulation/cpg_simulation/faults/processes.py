"""The faults of processes and of their machines."""

from collections.abc import Callable
from typing import Protocol

from cpg_simulation.nights.plan import Fault
from cpg_simulation.virtual.machine import Machine
from cpg_simulation.virtual.process import Process

USUAL_SECONDS_PER_READING = 2e-6


class Processes(Protocol):
    """The processes of a simulation, each with its machine."""

    def process(self, name: str) -> Process | None:
        """Return the process that runs under a name, if one does."""

    def machine(self, name: str) -> Machine:
        """Return the machine of a process."""

    def kill(self, name: str) -> None:
        """Kill the process that runs under a name, if one does."""

    def start_again(self, name: str) -> None:
        """Start a process again, if it has ended."""


class ProcessFaults:
    """Kills, stops and slows processes, and changes their clocks."""

    def __init__(self, processes: Processes, on_resumed: Callable[[str, float], None]) -> None:
        """Act on these processes; call ``on_resumed`` with each that was stopped, and the seconds."""
        self._processes = processes
        self._on_resumed = on_resumed

    def begin(self, fault: Fault) -> None:
        """Let a fault begin."""
        machine = self._processes.machine(fault.target)
        match fault.kind:
            case "kill":
                self._processes.kill(fault.target)
            case "terminate":
                self._on_process(fault, lambda process: process.signal(15))
            case "stop" | "suspend":
                self._on_process(fault, Process.stop)
            case "slow":
                machine.seconds_per_reading = USUAL_SECONDS_PER_READING * fault.amount
            case "skew-clock":
                machine.skew = fault.amount
            case _:
                machine.change_rate(fault.amount)

    def end(self, fault: Fault) -> None:
        """Let a fault end."""
        machine = self._processes.machine(fault.target)
        match fault.kind:
            case "kill":
                self._processes.start_again(fault.target)
            case "stop":
                self._on_process(fault, self._resume)
            case "suspend":
                machine.count_suspension(fault.seconds)
                self._on_process(fault, self._resume)
            case "slow":
                machine.seconds_per_reading = USUAL_SECONDS_PER_READING
            case "skew-clock":
                machine.skew = 0.0
            case "fast-clock":
                machine.change_rate(1.0)

    def _resume(self, process: Process) -> None:
        self._on_resumed(process.name, process.resume())

    def _on_process(self, fault: Fault, act: Callable[[Process], None]) -> None:
        process = self._processes.process(fault.target)
        if process is not None:
            act(process)
