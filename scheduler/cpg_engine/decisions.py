"""What a cycle wants done: values that a shell performs, in order."""

from msgspec import Struct

from cpg_engine.verdicts import Explanation


class VolumeChoice(Struct, frozen=True):
    """Bind a claim, as ``namespace/name``, to a volume; without one, have a volume made for a pod at the node."""

    claim: str
    volume: str | None
    node: str


class Bind(Struct, frozen=True):
    """Bind a pod to a node, after what is to be done for its claims there."""

    uid: str
    node: str
    choices: tuple[VolumeChoice, ...] = ()


class PlacementCounts(Struct, frozen=True):
    """How many domains a search had to choose from, and how many of those that it tried to fill it could, or not."""

    offered: int = 0
    feasible: int = 0
    infeasible: int = 0


class Decision(Struct, frozen=True):
    """All that was decided about one root: nothing is bound unless the whole minimum is."""

    binds: tuple[Bind, ...]
    explanation: Explanation
    placements: PlacementCounts = PlacementCounts()
