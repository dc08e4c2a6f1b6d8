"""What a leader left behind of a plan that it was about when it died, as the API server shows it.

Its preemptor's pods are nominated, and whom it came to has been told. Those who are being deleted go. Of a unit that
goes whole some may have gone already, which nothing shows; so if anybody of it has been told, it was begun. All others
are units by themselves, and stay.

Where the preemptor is gone as well, nobody is evicted for nothing: only a unit all of which had been told goes on, for
only of such a one somebody may have gone.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group
from cpg_engine.gangs.unit import POD
from cpg_engine.preemption.values import VictimUnit
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.conditions import is_disrupted
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.executor import Preemptor, Victim, is_told, telling, whom
from cpg_scheduler.preemption.states import ActivePreemption, preemptor_of
from cpg_scheduler.units import SchedulableUnit

ABOVE_ALL = 1 << 31
"""A priority that nobody has."""
NEVER = "9999"
"""A time after all others."""


class RecoveredPreemption(Struct, frozen=True):
    """What goes on of a plan, the units of it that are to be carried through, and who stays."""

    record: ActivePreemption
    begun: Sequence[Victim]
    staying: Sequence[Pod]


def left_behind(
    state: ClusterCache, root: UnitKey, ready: SchedulableUnit, nodes: Mapping[str, str]
) -> RecoveredPreemption:
    """Find out what became of the plan of a root whose pods, by UID, are nominated to these nodes."""
    preemptor = preemptor_of(ready)
    heard = {uid: pod for uid, pod in state.pods.items() if is_told(pod, preemptor.uid) and _has_room(pod)}
    going = {uid for uid, pod in heard.items() if pod.is_terminating}
    units = _whole(state, ready.priority, heard)
    victims = going.union(*(unit.pods for unit in units))
    record = ActivePreemption(
        root=root,
        preemptor=preemptor,
        priority=ready.priority,
        pods=set(ready.pods),
        nominations=dict(nodes),
        evicts=frozenset(victims),
        victims=victims,
        begun=set(victims),
        is_committed=True,
    )
    why = f"{preemptor.key} needs its place"
    return RecoveredPreemption(
        record=record,
        begun=[Victim([state.pods[uid] for uid in unit.pods], why) for unit in units],
        staying=[pod for uid, pod in heard.items() if uid not in victims],
    )


class OrphanedPreemption(Struct, frozen=True):
    """What was begun for a preemptor that is not there any more, and is to be carried through, and who stays."""

    preemptor: Preemptor
    begun: Sequence[Victim]
    staying: Sequence[Pod]
    groups: Sequence[Group] = ()
    """The groups that were told that they go as a whole, and stay."""


def orphaned(state: ClusterCache, known: Collection[str]) -> list[OrphanedPreemption]:
    """Find the victims of preemptors whose plans nobody goes on with: of all but those that are known, by UID."""
    heard: dict[str, tuple[Preemptor, dict[str, Pod]]] = {}
    for uid, pod in state.pods.items():
        said = telling(pod)
        preemptor = said and whom(state.scheduler_name, said.message)
        if preemptor and preemptor.uid not in known and state.is_writable(pod) and _has_room(pod):
            heard.setdefault(preemptor.uid, (preemptor, {}))[1][uid] = pod
    return [_orphaned(state, preemptor, victims) for preemptor, victims in heard.values()]


def _orphaned(state: ClusterCache, preemptor: Preemptor, victims: Mapping[str, Pod]) -> OrphanedPreemption:
    units = [(unit, [state.pods[uid] for uid in unit.pods]) for unit in _whole(state, ABOVE_ALL, victims)]
    begun = [[pod for pod in pods if not pod.is_terminating] for _, pods in units if _is_begun(pods, victims)]
    dropped = [unit for unit, pods in units if not _is_begun(pods, victims)]
    groups = [group for unit in dropped for group in state.victims.groups_of(unit) if is_disrupted(group)]
    going = {pod.metadata.uid for pods in begun for pod in pods}
    staying = [pod for uid, pod in victims.items() if uid not in going and not pod.is_terminating]
    why = f"{preemptor.key} needed its place"
    return OrphanedPreemption(preemptor, [Victim(pods, why) for pods in begun if pods], staying, groups)


def _has_room(pod: Pod) -> bool:
    """Tell whether a pod takes room of a node, so that its end will be told."""
    return bool(pod.spec.node_name) and not pod.is_terminal


def _whole(state: ClusterCache, below: int, heard: Mapping[str, Pod]) -> list[VictimUnit]:
    """Return the units below a priority that go whole, and of which somebody has been told."""
    return [
        unit for unit in state.victims.units(below) if unit.key.kind != POD and not heard.keys().isdisjoint(unit.pods)
    ]


def _is_begun(pods: Collection[Pod], victims: Collection[str]) -> bool:
    """Tell whether all who were of a unit had been told: who has come since does not count."""
    heard = [said for pod in pods if pod.metadata.uid in victims and (said := telling(pod)) is not None]
    since = min(filter(None, (said.last_transition_time for said in heard)), default=NEVER)
    return all(
        pod.metadata.uid in victims or pod.is_terminating or (pod.metadata.creation_timestamp or "") >= since
        for pod in pods
    )
