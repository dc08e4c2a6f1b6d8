"""What preemption does about a unit that found no place, as a value.

The machine returns it, the queue keeps it with the failed attempt, and ``status.messages`` turns it into a sentence.
"""

from collections.abc import Hashable
from enum import StrEnum

from msgspec import Struct

from cpg_engine.verdicts import Explanation


class PreemptionVerdict(StrEnum):
    """How it ended to ask for preemption."""

    ONGOING = "Ongoing"
    FORBIDDEN = "Forbidden"
    NO_VICTIMS = "NoVictims"
    NOT_ENOUGH = "NotEnough"
    NO_HELP = "NoHelp"


class PreemptionOutlook(Struct, frozen=True):
    """What preemption does for a preemptor of a kind: Pod, PodGroup or CompositePodGroup."""

    verdict: PreemptionVerdict
    kind: str
    victims: int | None = None
    """How many pods an ongoing preemption evicts, as long as none of them has ended."""
    explanation: Explanation | None = None
    """Why it would not be enough to evict all pods of lower priority."""

    @property
    def cause(self) -> Hashable:
        """Return what stays the same while the numbers in the explanation change."""
        return self.verdict, self.kind, self.victims
