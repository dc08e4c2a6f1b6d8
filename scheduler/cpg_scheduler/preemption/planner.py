"""Plans: which pods of lower priority have to be evicted for a unit, and which terminating pods it has to wait for."""

from collections.abc import Callable, Collection, Iterable

from cpg_engine.cycle import decide
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.plan import plan_preemption
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.active import ActivePreemptions
from cpg_scheduler.preemption.jobs import Preemptor
from cpg_scheduler.preemption.states import ActivePreemption
from cpg_scheduler.preemption.terminating import TerminatingPods
from cpg_scheduler.preemption.validate import count_placeable
from cpg_scheduler.units import SchedulableUnit

REFUSED_VICTIM_TTL_SECONDS = 300.0
"""Seconds for which plans exclude a pod that the API server refused to evict."""


class Planner:
    """Makes plans; it starts none."""

    def __init__(
        self,
        cache: ClusterCache,
        active: ActivePreemptions,
        terminating: TerminatingPods,
        *,
        options: SearchOptions,
        clock: Callable[[], float],
    ) -> None:
        """Plan beside the preemptions that are active, with no pod refused yet."""
        self._cache = cache
        self._active = active
        self._terminating = terminating
        self._options = options
        self._clock = clock
        self._refused_until: dict[str, float] = {}

    def plan(self, key: UnitKey, unit: SchedulableUnit) -> PreemptionPlan:
        """Return the plan for a unit, as if all pods that terminate had ended already."""
        victims = self._cache.victims.units(unit.priority, self._excluded())
        leaving = self.leaving()
        if not (victims or leaving or self._cache.snapshot.ledger.device_allocator.claims.released()):
            return PreemptionPlan(outcome=PlanOutcome.NO_VICTIMS)
        return plan_preemption(
            self._cache.snapshot,
            unit.unit,
            self._options,
            priority=unit.priority,
            units=victims,
            budgets=self._cache.budgets,
            ignored=(*self._cache.reservations.ignored_by(key, unit.priority), *leaving),
        )

    def needed(self, key: UnitKey, unit: SchedulableUnit, plan: PreemptionPlan) -> set[str]:
        """Return the terminating pods that a plan needs to end: those on its nodes, or all where these are not enough.

        A pod on another node can be in the way too, if its anti-affinity keeps the preemptor out of its zone.
        """
        if plan.outcome is not PlanOutcome.PLANNED:
            return set()
        nodes, leaving = {found.node for found in (*plan.nominations, *plan.reserved)}, self.leaving()
        near = {uid for uid in leaving if self._cache.pods[uid].spec.node_name in nodes}
        if near == leaving:
            return near
        ignored = (*self._cache.reservations.ignored_by(key, unit.priority), *victims_of(plan), *near)
        found = decide(self._cache.snapshot, unit.unit, self._options, ignored=ignored)
        is_enough = len(found.binds) + len(found.reserved) >= len(plan.nominations) + len(plan.reserved)
        return near if is_enough else leaving

    def start(
        self, key: UnitKey, unit: SchedulableUnit, plan: PreemptionPlan, needed: Iterable[str]
    ) -> ActivePreemption:
        """Return a new preemption by a plan."""
        victims = frozenset(victims_of(plan))
        preemption = ActivePreemption(
            unit=key,
            preemptor=Preemptor.of(unit),
            priority=unit.priority,
            pods=set(unit.pods),
            nominations={found.uid: found.node for found in plan.nominations},
            expected={found.uid: (unit.expected.pods[found.uid], found.node) for found in plan.reserved},
            victims=victims,
            awaited={*victims, *needed},
            plan=plan,
            overdrawn=self._cache.budgets.overdrawn_by(self._cache.pods[uid] for uid in victims),
        )
        preemption.placeable = self.placeable(preemption)
        return preemption

    def placeable(self, preemption: ActivePreemption) -> int:
        """Return how many pods of a preemptor could be placed once all awaited pods have ended.

        So have the pods that preemptions of its priority or above wait for: their reservations are in its way.
        """
        others = (one for one in self._active if one is not preemption and one.priority >= preemption.priority)
        ending = {uid for one in others for uid in one.awaited}
        return count_placeable(self._cache, preemption, ending, self._options)

    def leaving(self) -> set[str]:
        """Return the pods, by UID, that will free their room without further evictions."""
        return self._terminating.leaving(self._active.awaited())

    def exclude(self, uid: str) -> None:
        """Exclude a pod from plans for a while: the API server refuses to evict it."""
        self._refused_until[uid] = self._clock() + REFUSED_VICTIM_TTL_SECONDS

    def readmit(self) -> None:
        """Let pods be victims again that were excluded long enough; the preemptors that they may help are requeued."""
        now = self._clock()
        for uid in [uid for uid, until in self._refused_until.items() if until <= now]:
            del self._refused_until[uid]
            pod = self._cache.pods.get(uid)
            if pod is not None and pod.spec.node_name:
                self._cache.events.free_node(pod.spec.node_name)

    def _excluded(self) -> Collection[str]:
        """Return the pods that are no candidates: they terminate anyway, or have been refused."""
        return self._active.awaited() | self._refused_until.keys() | self._terminating.expected()


def victims_of(plan: PreemptionPlan) -> Iterable[str]:
    """Return the pods, by UID, that a plan evicts."""
    return [uid for eviction in plan.evictions for uid in eviction.unit.pods]
