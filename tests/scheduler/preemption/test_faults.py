"""What preemption never does, whatever happens in the middle of it: refusals, lost nodes, new leaders, others' deletes.

The units are held against the slow model of ``cpg_engine.testing.victim_units``.
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
CYCLES = 12
"""How many cycles, of each root, all news of one moment may cause at the most, telling included."""
RESTING = 8
"""Minutes in which everything comes to rest: a refusal is minded for five."""
CLOSED = Taint(key="closed", effect="NoSchedule")
WHICH = st.integers(0, 5)


class Root(Struct, frozen=True):
    """What comes: a pod, a gang or a tree of two gangs, and what of it goes as a whole, from the top down."""

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
    """A stage that counts cycles, and looks at every plan when the first of its victims is about to go."""

    def __init__(self, *things: Any) -> None:
        self.spent = 0
        self.begun: list[set[str]] = []
        super().__init__(*things, units_in_flight=2)

    def settle(self, seconds: float = 0.0) -> None:
        """Let time pass, and count anew."""
        self.spent = 0
        super().settle(seconds)

    def run_passes(self) -> int:
        """Run cycles, but not for ever."""
        before = self.spent
        while self.loop.run_pass():
            self.spent += 1
            assert self.spent <= CYCLES * (ROOTS + 1), "it runs hot"
        return self.spent - before

    def evict(self) -> None:
        """Perform what is under way, and look at it."""
        self.spent += 1
        assert self.spent <= CYCLES * (ROOTS + 1), "it evicts hot"
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
            self.begun.append({one.metadata.uid for one in victim.pods})

    def check(self, job: EvictionJob) -> None:
        """Compare a job whose first unit starts with the cluster."""
        preemptor = job.preemptor.group or next(iter(self.of(Pod, job.preemptor.uid)))
        priority = preemptor.spec.priority or 0
        units = {uid: unit for unit in self.units() for uid in unit.pods}
        for victim in job.victims:
            uids = {one.metadata.uid for one in victim.pods}
            for uid in uids & units.keys():
                assert units[uid].priority < priority
                assert {*units[uid].pods} <= uids, "half a unit goes"
        for one, name in job.nominations if job.victims else ():
            (known,) = self.of(Pod, one.metadata.uid)
            (place,) = self.of(Node, f"uid-{name}")
            assert not known.spec.node_name
            closed = place.spec.unschedulable or place.spec.taints
            assert not closed, "somebody goes for a node that is closed"

    def of(self, kind: type[Any], uid: str = "") -> list[Any]:
        """Return the objects of a kind, or the one with that UID."""
        return [one for one in self.objects() if isinstance(one, kind) and uid in {"", one.metadata.uid}]

    def units(self) -> list[VictimUnit]:
        """Return what runs and stays, as units."""
        groups = [*self.of(PodGroup), *self.of(CompositePodGroup)]
        return units_of(groups, (one for one in self.of(Pod) if not one.is_terminating))

    def restarted(self) -> "Watched":
        """Return the stage on which another leader has just begun."""
        after = Watched(*self.objects())
        after.victims_linger, after.begun, after.evicted = self.victims_linger, self.begun, self.evicted
        after.recover()
        return after


class Faults(RuleBasedStateMachine):
    """A few nodes, trees that come with different priorities, and all that can go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Watched()
        self.came = 0

    @initialize(
        cpus=st.lists(st.integers(2, 4), min_size=2, max_size=3),
        allowed=st.integers(0, 1),
        roots=st.lists(ROOT, min_size=3, max_size=5),
    )
    def begin(self, cpus: list[int], allowed: int, roots: list[Root]) -> None:
        """Have nodes that are as full as they can be, and a budget."""
        self.stage.put(*(node(f"n{number}", cpu=cpu) for number, cpu in enumerate(cpus)))
        self.stage.put(
            PodDisruptionBudget(
                metadata=metadata("kept"),
                spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "kept"})),
                status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
            )
        )
        for root in roots:
            self.come(root, 1)
        self.stage.settle()

    @rule(root=ROOT, priority=st.integers(1, 3))
    def come(self, root: Root, priority: int) -> None:
        """Have a root come: a pod, a gang, or a tree of three levels with two gangs."""
        if self.came == ROOTS:
            return
        name = f"r{self.came}"
        self.came += 1
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
        """Let time pass, and everything happen that is under way."""
        self.stage.settle(seconds)

    @rule()
    def decide(self) -> None:
        """Decide, and leave undone what was decided."""
        self.stage.spent = 0
        self.stage.run_passes()
        self.stage.complete_binds()

    @rule(patient=st.booleans())
    def take_time(self, patient: bool) -> None:  # noqa: FBT001 - hypothesis passes by name
        """Have victims take their time from now on, or none."""
        self.stage.victims_linger = patient

    @rule(which=WHICH)
    def end(self, which: int) -> None:
        """Have a pod end that was deleted."""
        going = [one for one in self.stage.of(Pod) if one.is_terminating]
        if going:
            self.stage.delete(going[which % len(going)])

    @rule(which=WHICH)
    def lose_pod(self, which: int) -> None:
        """Have somebody else delete a pod."""
        pods = self.stage.of(Pod)
        if pods:
            self.stage.delete(pods[which % len(pods)])

    @rule(which=WHICH, closed=st.booleans(), tainted=st.booleans())
    def close(self, *, which: int, closed: bool, tainted: bool) -> None:
        """Close a node, one way or the other, or open it."""
        nodes = self.stage.of(Node)
        one = nodes[which % len(nodes)]
        taints = (CLOSED,) if tainted else None
        self.stage.put(replace(one, spec=replace(one.spec, unschedulable=closed, taints=taints)))

    @rule(which=WHICH)
    def lose_node(self, which: int) -> None:
        """Have a node go; its pods are collected."""
        nodes = self.stage.of(Node)
        if len(nodes) < 2:
            return
        lost = nodes[which % len(nodes)]
        self.stage.delete(lost)
        self.stage.delete(*(one for one in self.stage.of(Pod) if one.spec.node_name == lost.metadata.name))

    @rule(allowed=st.integers(0, 2))
    def count(self, allowed: int) -> None:
        """Have the disruption controller count anew."""
        (budget,) = self.stage.of(PodDisruptionBudget)
        self.stage.put(replace(budget, status=PodDisruptionBudgetStatus(disruptions_allowed=allowed)))

    @rule(root=ROOT, priority=st.integers(2, 3), which=WHICH)
    def refuse(self, root: Root, priority: int, which: int) -> None:
        """Have the API server refuse a victim before anybody has gone: nobody does."""
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
            self.stage.refuse_eviction(unit.job_id, unit.victim.pods[which % len(unit.victim.pods)])
            self.stage.report(UnitFailed(unit.job_id, unit.number))

    @rule(
        root=ROOT, priority=st.integers(2, 3), which=WHICH, units=st.sampled_from([0, 0, 1, 2]), pods=st.integers(0, 2)
    )
    def die(self, *, root: Root, priority: int, which: int, units: int, pods: int) -> None:
        """Have another leader begin, while some units have gone, of another some pods, and the rest were left."""
        found = self.interrupted(root, priority, which)
        if found is not None:
            self.stage.executor.preparing.append(found)
            if self.stage.prepare(found):
                for number, victim in enumerate(found.victims[: units + 1]):
                    self.stage.started(victim)
                    self.stage.mark_victims(found, victim)
                    for one in victim.pods if number < units else victim.pods[:pods]:
                        self.stage.terminate(one)
        self.stage = self.stage.restarted()

    @rule()
    def rest(self) -> None:
        """Let all end that is going, and time pass: nothing is left of any plan, and nobody waits in vain."""
        self.stage.victims_linger = False
        self.stage.delete(*(one for one in self.stage.of(Pod) if one.is_terminating))
        for _ in range(RESTING):
            self.stage.settle(60)
            self.stage.put(*self.stage.of(PodDisruptionBudget))
        state, preemption = self.stage.cache, self.stage.preemption
        there = {one.metadata.uid for one in self.stage.of(Pod)}
        halves = [uids & there for uids in self.stage.begun if 0 < len(uids & there) < len(uids)]
        assert halves == [], "half a unit was left"
        assert (list(preemption._active), {*preemption._active.awaited()}, state.budgets._spent) == ([], set(), {})
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
        self.come(root, priority)
        self.decide()
        jobs = self.stage.executor.preparing
        return jobs.pop(which % len(jobs)) if jobs else None

    def teardown(self) -> None:
        """Have it end at rest."""
        if self.stage.of(Node):
            self.rest()


TestFaults = Faults.TestCase
TestFaults.settings = settings(max_examples=60, stateful_step_count=18, deadline=None)


def test_room_that_appears_for_some_before_anybody_has_gone_ends_the_plan() -> None:
    """It was made for all of them; for those that are left it may take fewer, or others."""
    gang = Root(shape="group", size=2, wholes=(False, False, True), cpu=1, app="")
    faults = Faults()
    faults.begin(cpus=[2, 2], allowed=0, roots=[gang, gang, gang])
    faults.come(priority=2, root=Root(shape="tree", size=1, wholes=(False, False, False), cpu=1, app=""))
    faults.decide()
    faults.lose_pod(which=0)
    faults.rest()
