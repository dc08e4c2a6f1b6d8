"""Plans that are under way, as values: what is remembered of one, and what is said of it."""

from collections.abc import Collection, Mapping

from msgspec import Struct, field

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import key_of
from cpg_engine.decisions import Decision
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import PreemptionPlan, VictimUnit
from cpg_engine.verdicts import Finding, Status
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.executor import Preemptor
from cpg_scheduler.status.messages import ongoing_preemption
from cpg_scheduler.units import SchedulableUnit


class ActivePreemption(Struct, kw_only=True):
    """A plan under way; ``plan`` is None where it was found again after a restart.

    ``pods`` are those of the preemptor that waited when it was made. ``victims`` are those, by UID, that it waits for,
    as long as they take room: those that it evicts, and others that are going for somebody else.
    """

    root: UnitKey
    preemptor: Preemptor
    priority: int
    pods: set[str]
    nominations: dict[str, str]
    evicts: frozenset[str]
    victims: set[str]
    plan: PreemptionPlan | None = None
    allowed: Mapping[str, int] = {}
    """What the budgets that cover its victims would have allowed without these, when it was made."""
    seats: int = 0
    """How many pods would be placed once its victims have gone, as was found when it was made; 0 where nobody looked.

    A plan may know of more, where a domain becomes free as a whole.
    """
    freed: list[str] = field(default_factory=list)
    """The nodes that pods of it were nominated to, and did not need."""
    begun: set[str] = field(default_factory=set)
    """The pods of ``evicts`` whose eviction has begun, and is carried through."""
    is_committed: bool = False
    is_broken: bool = False
    is_partial: bool = False
    """Whether some of the victims have gone."""


class PreemptionResult(Struct, frozen=True, kw_only=True):
    """What preemption does for a root that failed; ``outlook`` says it in words.

    ``waits`` tells that a plan is under way, for the ``nominated`` pods; ``hopes`` that news of anybody may make one
    possible.
    """

    outlook: str = ""
    waits: bool = False
    hopes: bool = False
    outcome: str = ""
    victims: int = 0
    nominated: frozenset[str] = frozenset()


NOTHING = PreemptionResult()
"""Of a failure that preemption has no part in."""


def is_due(decision: Decision, left: Collection[str]) -> bool:
    """Tell whether evicting could help, and is allowed in this cycle."""
    explanation = decision.explanation
    if not left or decision.binds or explanation.finding is Finding.CONTRADICTION:
        return False
    return explanation.finding is Finding.PLACED or explanation.reports[0].status is Status.UNSCHEDULABLE


def preemptor_of(ready: SchedulableUnit) -> Preemptor:
    """Return who preempts: the root group, or the pod that is alone."""
    if not ready.groups:
        (pod,) = ready.pods.values()
        return Preemptor(ready.unit.nodes[0].key, pod.metadata.uid)
    top = ready.groups[0]
    return Preemptor(key_of(top), top.metadata.uid, top)


def count_of(plan: PreemptionPlan) -> int:
    """Return how many pods a plan evicts."""
    return sum(len(eviction.unit.pods) for eviction in plan.evictions)


def outlook_of(record: ActivePreemption) -> str:
    """Say how it stands with a plan."""
    number = None if record.plan is None or record.is_partial else count_of(record.plan)
    return ongoing_preemption(record.root.key.kind, number or None)


def in_log(pods: Mapping[str, Pod], unit: VictimUnit, reason: str) -> dict[str, object]:
    """Return a victim for the log."""
    named = {} if unit.key.kind == POD else {"pods": sorted(pods[uid].metadata.key for uid in unit.pods)}
    return {"unit": str(unit.key), "priority": unit.priority, **named, "why": reason}
