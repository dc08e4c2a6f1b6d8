"""What a preemption is asked about, and what it answers."""

from enum import StrEnum

from msgspec import Struct

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.verdicts import Explanation


class VictimUnit(Struct, frozen=True, kw_only=True):
    """Running pods that are evicted together or not at all: a pod, or all pods below a group that goes as a whole.

    ``priority`` is that of the unit's root. ``since`` is when the first of the pods started, as RFC 3339.
    """

    key: GroupKey
    priority: int
    since: str
    pods: tuple[str, ...]


class DisruptionBudget(Struct, frozen=True):
    """A PodDisruptionBudget: how many of the pods that it covers, by UID, may be disrupted now."""

    name: str
    allowed: int
    pods: frozenset[str]


class Eviction(Struct, frozen=True):
    """A unit that has to go; ``violates`` names the budgets that do not allow it, ``reason`` says what needs it."""

    unit: VictimUnit
    reason: str
    violates: tuple[str, ...] = ()


class Nomination(Struct, frozen=True):
    """The node that a pod gets once the evicted are gone."""

    uid: str
    node: str


class PlanOutcome(StrEnum):
    """How the search for victims ended.

    ``NOT_ENOUGH``: not even without all units of lower priority would there be a place. ``NO_VICTIMS``: there is no
    unit of lower priority. ``NOT_HELPFUL``: no eviction at all could help, so none was looked for.
    """

    PLANNED = "Planned"
    NO_VICTIMS = "NoVictims"
    NOT_ENOUGH = "NotEnough"
    NOT_HELPFUL = "NotHelpful"


class PreemptionPlan(Struct, frozen=True, kw_only=True):
    """Who has to go and who goes where then; without nominations nobody is to be evicted.

    ``considered`` units of lower priority were looked at, ``domains`` places were compared, and ``exhausted`` tells
    that there were more places than the budget allowed to compare. ``explanation`` is that of the cluster without all
    units of lower priority, where not even that is enough.
    """

    outcome: PlanOutcome
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    considered: int = 0
    domains: int = 0
    exhausted: bool = False
    explanation: Explanation | None = None
