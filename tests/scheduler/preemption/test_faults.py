"""What preemption never does, whatever fails in the middle of it: refusals, lost nodes and pods, new leaders.

The units are compared with the slow model of ``cpg_engine.testing.victim_units``.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.disruption import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from cpg_api.core.node import Node, Taint
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.cycle import decide
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group
from cpg_engine.testing.victim_units import units_of
from cpg_scheduler.cache.reservations import RESERVATION_PREFIX
from cpg_scheduler.preemption.jobs import (
    EvictionJob,
    EvictUnit,
    PreparationStopped,
    UnitEvicted,
    UnitFailed,
    UnitStalled,
    Victim,
)
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.units import SchedulableUnit, build_unit, queue_key_of

ROOTS = 16
MAX_PASSES = 12
"""Passes per root that all events of one moment may cause, reports included."""
MINUTES_TO_REST = 8
"""Minutes until everything is at rest: a refused victim is left out of plans for five."""
CORDONED = Taint(key="cordoned", effect="NoSchedule")
WHICH = st.integers(0, 5)


class Root(Struct, frozen=True):
    """A pod, a gang or a tree of two gangs; ``wholes`` are its groups, from the top, that are evicted as a whole."""

    shape: str
    size: int
    wholes: tuple[bool, bool, bool] = (False, False, False)
    cpu: int = 1
    app: str = ""


LEAVES, MIDDLE, TOP = (False, False, True), (False, True, False), (True, False, True)
ROOT = st.sampled_from(
    [
        Root("group", 2, LEAVES),
        Root("group", 3, LEAVES),
        Root("group", 2, LEAVES, app="kept"),
        Root("group", 2),
        Root("tree", 1, TOP),
        Root("tree", 2, MIDDLE),
        Root("tree", 2, LEAVES),
        Root("tree", 1),
        Root("pod", 1),
        Root("pod", 1, cpu=2),
        Root("pod", 1, app="kept"),
    ]
)


class Watched(Stage):
    """A stage that counts passes, and checks every plan just before its first eviction."""

    def __init__(self, *things: Any) -> None:
        self.spent = 0
        self.evicted_units: list[set[str]] = []
        super().__init__(*things, units_in_flight=2)

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass, and start counting again."""
        self.spent = 0
        super().settle(seconds)

    def run_passes(self) -> int:
        """Run passes, but not without end."""
        before = self.spent
        while self.loop.run_pass():
            self.spent += 1
            assert self.spent <= MAX_PASSES * (ROOTS + 1), "too many passes"
        return self.spent - before

    def evict(self) -> None:
        """Perform the instructions, but not without end."""
        self.spent += 1
        assert self.spent <= MAX_PASSES * (ROOTS + 1), "too many evictions"
        super().evict()

    def prepare(self, job: EvictionJob) -> bool:
        """Prepare a job, and check it if its plan is valid."""
        is_valid = super().prepare(job)
        if is_valid:
            self.check(job)
        return is_valid

    def evict_unit(self, unit: EvictUnit) -> None:
        """Evict a unit, and remember it if it has several pods."""
        self.started(unit.victim)
        super().evict_unit(unit)

    def started(self, victim: Victim) -> None:
        """Remember that a unit is evicted as a whole."""
        if len(victim.pods) > 1:
            self.evicted_units.append({one.metadata.uid for one in victim.pods})

    def refused(self, victim: Victim) -> None:
        """Forget a unit: the API server may refuse the last of its pods after an earlier leader has evicted others."""
        uids = {one.metadata.uid for one in victim.pods}
        self.evicted_units = [found for found in self.evicted_units if found.isdisjoint(uids)]

    def check(self, job: EvictionJob) -> None:
        """Compare a job with the cluster, when its first unit starts."""
        preemptor = job.preemptor.group or next(iter(self.of(Pod, job.preemptor.uid)))
        priority = preemptor.spec.priority or 0
        units = {uid: unit for unit in self.units() for uid in unit.pods}
        for victim in job.victims:
            uids = {one.metadata.uid for one in victim.pods}
            for uid in uids & units.keys():
                assert units[uid].priority < priority
                assert {*units[uid].pods} <= uids, "a unit is evicted in part"
        for one, name in job.nominations if job.victims else ():
            (known,) = self.of(Pod, one.metadata.uid)
            (place,) = self.of(Node, f"uid-{name}")
            assert not known.spec.node_name
            is_cordoned = place.spec.unschedulable or place.spec.taints
            assert not is_cordoned, "a pod is evicted for a node that is cordoned"

    def of(self, kind: type[Any], uid: str = "") -> list[Any]:
        """Return the objects of a kind, or the one with that UID."""
        return [one for one in self.objects() if isinstance(one, kind) and uid in {"", one.metadata.uid}]

    def units(self) -> list[VictimUnit]:
        """Return the units of the pods that run and do not terminate."""
        groups = [*self.of(PodGroup), *self.of(CompositePodGroup)]
        return units_of(groups, (one for one in self.of(Pod) if not one.is_terminating))

    def restarted(self) -> "Watched":
        """Return a stage with a new leader."""
        after = Watched(*self.objects())
        after.victims_linger, after.evicted = self.victims_linger, self.evicted
        after.evicted_units = self.evicted_units
        after.recover()
        return after


class Faults(RuleBasedStateMachine):
    """A few nodes, roots of different priorities, and all that can fail."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Watched()
        self.created = 0

    @initialize(
        cpus=st.lists(st.integers(2, 4), min_size=2, max_size=3),
        allowed=st.integers(0, 1),
        roots=st.lists(ROOT, min_size=3, max_size=5),
    )
    def begin(self, cpus: list[int], allowed: int, roots: list[Root]) -> None:
        """Start with full nodes and a budget."""
        self.stage.put(*(node(f"n{number}", cpu=cpu) for number, cpu in enumerate(cpus)))
        self.stage.put(
            PodDisruptionBudget(
                metadata=metadata("kept"),
                spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "kept"})),
                status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
            )
        )
        for root in roots:
            self.create(root, 1)
        self.stage.settle()

    @rule(root=ROOT, priority=st.integers(1, 3))
    def create(self, root: Root, priority: int) -> None:
        """Create a root: a pod, a gang, or a tree of three levels with two gangs."""
        if self.created == ROOTS:
            return
        name = f"r{self.created}"
        self.created += 1
        leaves = {"pod": [""], "group": [name], "tree": [f"{name}a", f"{name}b"]}[root.shape]
        if root.shape == "tree":
            self.stage.put(composite(name, priority=priority, all_=root.wholes[0], gang=1))
            self.stage.put(composite(f"{name}m", parent=name, priority=priority, all_=root.wholes[1], gang=1))
        parent = f"{name}m" if root.shape == "tree" else None
        for leaf in filter(None, leaves):
            self.stage.put(pod_group(leaf, gang=root.size, priority=priority, parent=parent, all_=root.wholes[2]))
        for leaf in leaves:
            for number in range(root.size if leaf else 1):
                labels = ({POD_GROUP_LABEL: leaf} if leaf else {}) | ({"app": root.app} if root.app else {})
                meta = metadata(f"{leaf or name}-{number}", **labels)
                self.stage.put(pod(meta.name, meta=meta, cpu=root.cpu, priority=priority))

    @rule(seconds=st.sampled_from([0.0, 1.0, 40.0]))
    def work(self, seconds: float) -> None:
        """Let time pass, and everything happen that is in flight."""
        self.stage.settle(seconds)

    @rule()
    def decide(self) -> None:
        """Decide, bind, and leave the evictions undone."""
        self.stage.spent = 0
        self.stage.run_passes()
        self.stage.complete_binds()

    @rule(patient=st.booleans())
    def slow_down(self, patient: bool) -> None:  # noqa: FBT001 - hypothesis passes by name
        """Let victims terminate for a while from now on, or end at once."""
        self.stage.victims_linger = patient

    @rule(which=WHICH)
    def end(self, which: int) -> None:
        """Let a terminating pod end."""
        going = [one for one in self.stage.of(Pod) if one.is_terminating]
        if going:
            self.stage.delete(going[which % len(going)])

    @rule(which=WHICH)
    def lose_pod(self, which: int) -> None:
        """Delete a pod, as another component would."""
        pods = self.stage.of(Pod)
        if pods:
            self.stage.delete(pods[which % len(pods)])

    @rule(which=WHICH, cordoned=st.booleans(), tainted=st.booleans())
    def cordon(self, *, which: int, cordoned: bool, tainted: bool) -> None:
        """Cordon or taint a node, or undo it."""
        nodes = self.stage.of(Node)
        one = nodes[which % len(nodes)]
        taints = (CORDONED,) if tainted else None
        self.stage.put(replace(one, spec=replace(one.spec, unschedulable=cordoned, taints=taints)))

    @rule(which=WHICH)
    def lose_node(self, which: int) -> None:
        """Delete a node with its pods."""
        nodes = self.stage.of(Node)
        if len(nodes) < 2:
            return
        lost = nodes[which % len(nodes)]
        self.stage.delete(lost)
        self.stage.delete(*(one for one in self.stage.of(Pod) if one.spec.node_name == lost.metadata.name))

    @rule(allowed=st.integers(0, 2))
    def count(self, allowed: int) -> None:
        """Let the disruption controller count."""
        (budget,) = self.stage.of(PodDisruptionBudget)
        self.stage.put(replace(budget, status=PodDisruptionBudgetStatus(disruptions_allowed=allowed)))

    @rule(root=ROOT, priority=st.integers(2, 3), which=WHICH)
    def refuse(self, root: Root, priority: int, which: int) -> None:
        """Refuse a victim before the first eviction: no pod of the job is evicted."""
        found = self.interrupted(root, priority, which)
        if found is None:
            return
        if not found.victims:
            self.stage.executor.preparing.append(found)
            return
        victim = found.victims[which % len(found.victims)]
        self.stage.refuse_eviction(found.id, victim.pods[which % len(victim.pods)])
        assert found.id in self.stage.executor.cancelled
        self.stage.report(PreparationStopped(found.id))

    @rule(root=ROOT, priority=st.integers(2, 3), which=WHICH)
    def start(self, root: Root, priority: int, which: int) -> None:
        """Let the first units of a job start, and leave them in flight."""
        found = self.interrupted(root, priority, which)
        if found is not None:
            self.stage.executor.preparing.append(found)
            self.stage.prepare(found)

    @rule(which=WHICH, outcome=st.sampled_from([UnitEvicted, UnitFailed, UnitStalled]))
    def report(self, which: int, outcome: type[UnitEvicted | UnitFailed | UnitStalled]) -> None:
        """Let a unit in flight be evicted, refused, or stall."""
        units = self.stage.executor.units
        if not units:
            return
        unit = units[which % len(units)]
        if outcome is UnitStalled:
            self.stage.report(UnitStalled(unit.job_id, unit.number))
            return
        units.remove(unit)
        if outcome is UnitEvicted:
            self.stage.evict_unit(unit)
        else:
            self.stage.refused(unit.victim)
            self.stage.refuse_eviction(unit.job_id, unit.victim.pods[which % len(unit.victim.pods)])
            self.stage.report(UnitFailed(unit.job_id, unit.number))

    @rule(
        root=ROOT, priority=st.integers(2, 3), which=WHICH, units=st.sampled_from([0, 0, 1, 2]), pods=st.integers(0, 2)
    )
    def die(self, *, root: Root, priority: int, which: int, units: int, pods: int) -> None:
        """Start a new leader, after some units were evicted, and some pods of another one."""
        found = self.interrupted(root, priority, which)
        if found is not None:
            self.stage.executor.preparing.append(found)
            if self.stage.prepare(found):
                for number, victim in enumerate(found.victims[: units + 1]):
                    self.stage.mark_victims(found, victim)
                    evicted = victim.pods if number < units else victim.pods[:pods]
                    if evicted:  # else a lost node, which is no eviction, may take a part of it
                        self.stage.started(victim)
                    for one in evicted:
                        self.stage.terminate(one)
        self.stage = self.stage.restarted()

    @rule()
    def rest(self) -> None:
        """Let all terminating pods end, and time pass: no preemption is left, and no unit waits in vain."""
        self.stage.victims_linger = False
        self.stage.delete(*(one for one in self.stage.of(Pod) if one.is_terminating))
        for _ in range(MINUTES_TO_REST):
            self.stage.settle(60)
            self.stage.put(*self.stage.of(PodDisruptionBudget))
        errors = [call.kwargs for call in self.stage.log.calls if call.kwargs.get("event") == "attempt failed"]
        assert errors == [], "a transition that is not in the table, or another defect"
        state, preemption = self.stage.cache, self.stage.preemption
        there = {one.metadata.uid for one in self.stage.of(Pod)}
        parts = [uids & there for uids in self.stage.evicted_units if 0 < len(uids & there) < len(uids)]
        assert parts == [], "a unit was evicted in part"
        spent = [there.spent for there in state.budgets._namespaces.values() if there.spent]
        assert (list(preemption._active), {*preemption._active.awaited()}, spent) == ([], set(), [])
        assert (len(preemption._evictions), self.stage.executor.jobs) == (0, {})
        assert state.reservations.reserved_uids() == ()
        assert not [uid for uid in state.snapshot.ledger._held if uid.startswith(RESERVATION_PREFIX)]
        assert not [one for one in self.stage.of(Pod) if one.status.nominated_node_name and not one.spec.node_name]
        for root in {state.unit_of(one) for one in state.pods.values() if state.is_pending(one)}:
            attempt = build_unit(state, root) if queue_key_of(state, root) is not None else None
            if isinstance(attempt, SchedulableUnit):
                assert decide(state.snapshot, attempt.unit, SearchOptions()).binds == (), f"{root} could be placed"
                assert preemption.explain(root, attempt).nominations == (), f"{root} could evict"

    def interrupted(self, root: Root, priority: int, which: int) -> EvictionJob | None:
        """Have an important root come; return a job that is being prepared then, and is prepared no more."""
        self.stage.settle()
        self.create(root, priority)
        self.decide()
        jobs = self.stage.executor.preparing
        return jobs.pop(which % len(jobs)) if jobs else None

    def teardown(self) -> None:
        """End at rest."""
        if self.stage.of(Node):
            self.rest()


TestFaults = Faults.TestCase
TestFaults.settings = settings(max_examples=60, stateful_step_count=18)


def test_room_for_some_pods_before_the_first_eviction_breaks_the_plan() -> None:
    """It was made for all pods; for the others there may be one with fewer victims, or other ones."""
    gang = Root(shape="group", size=2, wholes=(False, False, True), cpu=1, app="")
    faults = Faults()
    faults.begin(cpus=[2, 2], allowed=0, roots=[gang, gang, gang])
    faults.create(priority=2, root=Root(shape="tree", size=1, wholes=(False, False, False), cpu=1, app=""))
    faults.decide()
    faults.lose_pod(which=0)
    faults.rest()
