"""Recovery: what the API shows of the preemptions of a previous leader, and how they continue.

The preemptor's pods are nominated, and the condition of each victim names the preemptor. Victims that terminate already
are waited for. A unit that is evicted as a whole is completed if it has lost a pod: a marked pod terminates, a group
has fewer pods than its minimum, or a pod is newer than the marks. A mark alone is no reason, because the retraction of
a broken plan may have failed. So a unit with all of its pods stays, as marked pods do that are units by themselves.
Their marks are retracted, and a plan is made anew. A unit with more pods than its minimum that has lost some without
any trace stays as well.

If the preemptor is gone, all pods of the unit must have been marked, too. Otherwise we cannot have deleted any of them,
so the eviction of the others would be in vain.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, key_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import VictimUnit
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.conditions import is_disrupted
from cpg_scheduler.cache.nominations import own_nomination
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.active import ActivePreemptions
from cpg_scheduler.preemption.evictions import Evictions
from cpg_scheduler.preemption.jobs import ClearNominations, Preemptor, RetractEvictions, Victim
from cpg_scheduler.preemption.lifecycle import Lifecycle
from cpg_scheduler.preemption.outbox import Outbox
from cpg_scheduler.preemption.states import ActivePreemption, Trigger
from cpg_scheduler.preemption.validate import takes
from cpg_scheduler.preemption.victim_condition import is_victim_of, preemptor_in, victim_condition
from cpg_scheduler.units import SchedulableUnit, build_unit, members_of, queue_key_of

HIGHEST_PRIORITY = 1 << 31
"""Above every priority."""
NEVER = "9999"
"""Later than every timestamp."""


class Recovery:
    """Takes up preemptions that are known from the API alone."""

    def __init__(
        self,
        cache: ClusterCache,
        active: ActivePreemptions,
        lifecycle: Lifecycle,
        evictions: Evictions,
        outbox: Outbox,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        """Wire up."""
        self._cache = cache
        self._active = active
        self._lifecycle = lifecycle
        self._evictions = evictions
        self._outbox = outbox
        self._log = log

    def run(self) -> None:
        """Take up all preemptions of a previous leader."""
        nominated: dict[UnitKey, dict[str, str]] = {}
        for uid, pod in self._cache.pods.items():
            if (node := own_nomination(pod)) and self._cache.is_pending(pod):
                nominated.setdefault(self._cache.unit_of(pod), {})[uid] = node
        for key, nodes in nominated.items():
            self.take_up(key, nodes)
        for found in orphaned(self._cache, {preemption.preemptor.uid for preemption in self._active}):
            self._complete(found)

    def take_up(self, key: UnitKey, nodes: Mapping[str, str]) -> None:
        """Continue the preemption of a unit, with its pods, by UID, nominated to these nodes."""
        unit = build_unit(self._cache, key) if queue_key_of(self._cache, key) is not None else None
        if not isinstance(unit, SchedulableUnit):
            self._outbox.add(ClearNominations([self._cache.pods[uid] for uid in nodes]))
            return
        found = recovered(self._cache, key, unit, nodes)
        preemption = found.preemption
        self._lifecycle.begin(preemption, Trigger.RECOVERED)
        started = (pod for victim in found.started for pod in victim.pods)
        self._cache.budgets.spend(pod for pod in started if not pod.is_terminating)
        self._log.info(
            "preemption taken up",
            root=str(key.key),
            flavour=key.flavour,
            victims=len(preemption.awaited),
            dropped=len(found.staying),
        )
        self._retract(found.staying)
        if found.started:
            self._evictions.start(preemption.preemptor, found.started, preemption=preemption, is_resumed=True)
        if found.staying or not all(takes(self._cache, node, uid) for uid, node in nodes.items()):
            self._lifecycle.break_off(preemption, "it was interrupted before all of its victims had been started")

    def _complete(self, found: "OrphanedPreemption") -> None:
        """Complete the units that were started for a preemptor that is gone."""
        if not (found.started or found.staying):
            return
        self._log.info(
            "preemption carried through",
            root=str(found.preemptor.key),
            victims=sum(len(victim.pods) for victim in found.started),
            dropped=len(found.staying),
        )
        self._cache.budgets.spend(pod for victim in found.started for pod in victim.pods)
        self._retract(found.staying, found.groups)
        if found.started:
            self._evictions.start(found.preemptor, found.started, preemption=None, is_resumed=True)

    def _retract(self, pods: Sequence[Pod], groups: Sequence[Group] = ()) -> None:
        if pods:
            self._outbox.add(RetractEvictions(pods, groups))


class RecoveredPreemption(Struct, frozen=True):
    """A preemption that continues, the victim units to complete, and the marked pods that stay."""

    preemption: ActivePreemption
    started: Sequence[Victim]
    staying: Sequence[Pod]


class OrphanedPreemption(Struct, frozen=True):
    """Victims of a preemptor that is gone: the units to complete, and the marked pods that stay."""

    preemptor: Preemptor
    started: Sequence[Victim]
    staying: Sequence[Pod]
    groups: Sequence[Group] = ()
    """The marked groups that stay."""


def recovered(
    cache: ClusterCache, key: UnitKey, unit: SchedulableUnit, nodes: Mapping[str, str]
) -> RecoveredPreemption:
    """Return the preemption of a unit, with its pods, by UID, nominated to these nodes."""
    preemptor = Preemptor.of(unit)
    marked = {uid: pod for uid, pod in cache.pods.items() if is_victim_of(pod, preemptor.uid) and _has_room(pod)}
    terminating = {uid for uid, pod in marked.items() if pod.is_terminating}
    units = [one for one in _marked_units(cache, unit.priority, marked) if _has_lost_pods(cache, one, marked)]
    victims = terminating.union(*(victim.pods for victim in units))
    preemption = ActivePreemption(
        unit=key,
        preemptor=preemptor,
        priority=unit.priority,
        pods=set(unit.pods),
        nominations=dict(nodes),
        victims=frozenset(victims),
        awaited=victims,
        started=set(victims),
    )
    return RecoveredPreemption(
        preemption,
        started=[Victim([cache.pods[uid] for uid in victim.pods]) for victim in units],
        staying=[pod for uid, pod in marked.items() if uid not in victims],
    )


def orphaned(cache: ClusterCache, active: Collection[str]) -> list[OrphanedPreemption]:
    """Return the victims of all preemptors, by UID, that have no active preemption."""
    marked: dict[str, tuple[Preemptor, dict[str, Pod]]] = {}
    for uid, pod in cache.pods.items():
        condition = victim_condition(pod)
        preemptor = condition and preemptor_in(cache.scheduler_name, condition.message)
        if preemptor and preemptor.uid not in active and cache.is_writable(pod) and _has_room(pod):
            marked.setdefault(preemptor.uid, (preemptor, {}))[1][uid] = pod
    return [_orphaned(cache, preemptor, victims) for preemptor, victims in marked.values()]


def _orphaned(cache: ClusterCache, preemptor: Preemptor, marked: Mapping[str, Pod]) -> OrphanedPreemption:
    units = _marked_units(cache, HIGHEST_PRIORITY, marked)
    begun = [unit for unit in units if _may_have_started(cache, unit, marked) and _has_lost_pods(cache, unit, marked)]
    started = [[pod for uid in unit.pods if not (pod := cache.pods[uid]).is_terminating] for unit in begun]
    dropped = [unit for unit in units if unit not in begun]
    groups = [group for unit in dropped for group in cache.victims.groups_of(unit) if is_disrupted(group)]
    evicted = {pod.metadata.uid for pods in started for pod in pods}
    staying = [pod for uid, pod in marked.items() if uid not in evicted and not pod.is_terminating]
    return OrphanedPreemption(preemptor, [Victim(pods) for pods in started if pods], staying, groups)


def _has_room(pod: Pod) -> bool:
    """Return whether a pod takes room of a node, so that the watch will show its end."""
    return bool(pod.spec.node_name) and not pod.is_terminal


def _marked_units(cache: ClusterCache, below: int, marked: Mapping[str, Pod]) -> list[VictimUnit]:
    """Return the units below a priority that are evicted as a whole and have a marked pod."""
    units = cache.victims.units(below)
    return [unit for unit in units if unit.key.kind != POD and not marked.keys().isdisjoint(unit.pods)]


def _may_have_started(cache: ClusterCache, unit: VictimUnit, marked: Mapping[str, Pod]) -> bool:
    """Return whether all pods had been marked that belonged to a unit then: later ones do not count."""
    since = _marked_since(unit, marked)
    return all(uid in marked or pod.is_terminating or _is_newer(pod, since) for uid, pod in _pods_of(cache, unit))


def _has_lost_pods(cache: ClusterCache, unit: VictimUnit, marked: Mapping[str, Pod]) -> bool:
    """Return whether the present pods of a unit show that some have ended, or are ending, since it was marked."""
    since, flavour = _marked_since(unit, marked), cache.unit_of(cache.pods[unit.pods[0]]).flavour
    for group in cache.victims.groups_of(unit):
        if not isinstance(group, PodGroup):
            continue
        members = list(cache.members(flavour, key_of(group)))
        if any(_is_newer(pod, since) or (pod.metadata.uid in marked and pod.is_terminating) for pod in members):
            return True
        if 0 < len(members_of(cache, flavour, key_of(group)).scheduled) < group.minimum:
            return True
    return False


def _pods_of(cache: ClusterCache, unit: VictimUnit) -> Iterator[tuple[str, Pod]]:
    return ((uid, cache.pods[uid]) for uid in unit.pods)


def _marked_since(unit: VictimUnit, marked: Mapping[str, Pod]) -> str:
    """Return when the first pod of a unit was marked."""
    conditions = (victim_condition(marked[uid]) for uid in unit.pods if uid in marked)
    return min((one.last_transition_time for one in conditions if one and one.last_transition_time), default=NEVER)


def _is_newer(pod: Pod, since: str) -> bool:
    return (pod.metadata.creation_timestamp or "") >= since
