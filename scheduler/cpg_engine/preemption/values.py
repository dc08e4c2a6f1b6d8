"""The values that a preemption is asked with and answers with."""

from enum import StrEnum

from msgspec import Struct

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.verdicts import Domain, Explanation


class VictimUnit(Struct, frozen=True, kw_only=True):
    """Running pods that are evicted together or not at all: one pod, or all pods below a group of disruption mode all.

    ``priority`` is the highest of the pods. ``since`` is when the first of the pods started, as RFC 3339.
    """

    key: GroupKey
    priority: int
    since: str
    pods: tuple[str, ...]


class EvictionReason(Struct, frozen=True, kw_only=True):
    """What the preemptor needs of a victim.

    With a ``resource``, it needs the ``amount`` of it that the victim holds on ``node``. Without one, its pods cannot
    run on ``node`` beside the victim, which runs on ``victim_node`` where that is another node. ``domain`` is the one
    that the preemptor is placed in, where it requires one.
    """

    preemptor: GroupKey
    node: str
    resource: str = ""
    amount: int = 0
    victim_node: str = ""
    domain: Domain | None = None


class Eviction(Struct, frozen=True):
    """A unit to evict, what the preemptor needs of it, and the names of budgets that forbid it, at most ten."""

    unit: VictimUnit
    reason: EvictionReason
    violates: tuple[str, ...] = ()


class Nomination(Struct, frozen=True):
    """The node that a pod gets once the victims are gone."""

    uid: str
    node: str


class PlanOutcome(StrEnum):
    """How the search for victims ended.

    ``NOT_ENOUGH``: evicting all units of lower priority would not make enough room. ``NO_VICTIMS``: no unit of lower
    priority holds room. ``NOT_HELPFUL``: no eviction could help, so no victims were searched for.
    """

    PLANNED = "Planned"
    NO_VICTIMS = "NoVictims"
    NOT_ENOUGH = "NotEnough"
    NOT_HELPFUL = "NotHelpful"


class PreemptionPlan(Struct, frozen=True, kw_only=True):
    """The units to evict, and where the preemptor's pods go then; without nominations nothing is to be evicted.

    ``considered`` units of lower priority hold room, and ``domains`` candidates were compared. ``exhausted`` says that
    the budget ended the comparison. ``explanation`` is that of the cluster without all units of lower priority, where
    evicting all of them is not enough.
    """

    outcome: PlanOutcome
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    reserved: tuple[Nomination, ...] = ()
    """Where the room is for pods of the preemptor that do not exist yet."""
    considered: int = 0
    domains: int = 0
    exhausted: bool = False
    explanation: Explanation | None = None
