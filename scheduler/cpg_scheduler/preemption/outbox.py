"""The instructions that one event leads to."""

from collections.abc import Iterable

from cpg_api.core.pod import Pod
from cpg_scheduler.preemption.jobs import ClearNominations, PreemptionInstruction


class Outbox:
    """Collects instructions in order; the machine returns them at the end of each event."""

    def __init__(self) -> None:
        """Start empty."""
        self._instructions: list[PreemptionInstruction] = []

    def add(self, *instructions: PreemptionInstruction) -> None:
        """Add instructions."""
        self._instructions.extend(instructions)

    def clear_nominations(self, pods: Iterable[Pod]) -> None:
        """Have the nominations of pods removed, if there are any. That of another component stays."""
        found = tuple(pod for pod in pods if not pod.is_nominated_by_other)
        if found:
            self.add(ClearNominations(found))

    def take(self) -> list[PreemptionInstruction]:
        """Return what has been added, and start anew."""
        taken, self._instructions = self._instructions, []
        return taken
