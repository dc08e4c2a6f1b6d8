"""Preemption: when it is tried, and what holds while others make room.

The engine plans, the evictor evicts; here is kept, per root, the plan that is under way. The rules:

1. **When.** A root that found no place, but could if others went; or one whose minimum runs and of whose later members
   none was placed in this cycle. So binding and preempting never meet in one cycle. Never for ``Never``.
2. **One plan at a time.** While a victim still takes room no further plan is made, however long it takes to end. The
   root is attempted when there are news, and room elsewhere is taken without evicting more.
3. **Room is kept.** Its pods hold theirs as ghosts, which those that outrank it pass, and nobody else. A pod that is
   placed where another of its root was to be leaves that one its own seat, and one whose bind fails keeps what it had.
4. **Who is going anyway is counted on.** A plan looks at the cluster as if all victims of other plans had gone, with
   the ghosts in their place, and so had those whom anybody else has deleted; it evicts only what is missing then. It
   waits for those of them that it needs.
5. **Who should have ended a while ago and has not is not counted on**, whoever deleted it: its kubelet may be dead. A
   plan that waits for such a pod is kept until there is one that need not.
6. **A plan breaks** when a node of it takes no such pods any more, its pods are others now, a victim must not be
   evicted, a plan that it counted on is dropped, or all have gone and it does not fit; and when a last look finds that
   it is in vain, or that a unit is another now. Units that have not been begun by then stay.
7. **Nothing is remembered that the API does not know.** A new leader waits for those who are going, and ends what the
   old one began of a unit that goes whole. If there was more to be done, the plan is made anew.

**Why this ends.** Take a closed system: pods that are evicted come again with the priority they had, nodes stay, and
nobody but us binds. A plan of a root evicts only what is less important. So the most important roots are never evicted,
and nobody passes their ghosts: each plans once, fits when its victims are gone, and plans no more. Suppose that the
roots above some priority have stopped planning and moving. A root of that priority can then lose the room of its
plan to nobody: equals and lesser ones see it taken, and none above takes any more. So it makes one more plan at the
most, and the next priority follows. With n roots of p priorities there is an end to evictions, and two roots never
evict each other: each would have to be the less important.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_client.errors import ClientError
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.plan import plan_preemption as plan_for
from cpg_engine.preemption.values import PlanOutcome, PreemptionPlan
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import Metrics
from cpg_scheduler.preemption.executor import EvictionJob, Evictor, Victim, always
from cpg_scheduler.preemption.recovery import OrphanedPreemption, left_behind, orphaned
from cpg_scheduler.preemption.states import (
    NOTHING,
    ActivePreemption,
    PreemptionResult,
    count_of,
    in_log,
    is_due,
    outlook_of,
    preemptor_of,
)
from cpg_scheduler.preemption.terminating import TerminatingPods
from cpg_scheduler.preemption.validate import (
    ROOM,
    count_assignments,
    is_other,
    renominate,
    takes,
    validate_plan,
    who_stays,
)
from cpg_scheduler.queueing.hints import UNPROVEN
from cpg_scheduler.status.messages import eviction_message, forbidden_preemption, vain_preemption
from cpg_scheduler.units import SchedulableUnit, build_unit, pending_pods, queue_key_of

GRUDGE = 300.0
"""Seconds for which a pod that must not be evicted is left out of plans."""


class Preemption:
    """The plans that are under way."""

    def __init__(
        self,
        state: ClusterCache,
        evictor: Evictor,
        *,
        metrics: Metrics,
        options: SearchOptions,
        clock: Callable[[], float],
        wall: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        """Start with none; ``wall`` is the time of day, in which the API server says when a pod is to have ended."""
        self._state = state
        self._evictor = evictor
        self._metrics = metrics
        self._options = options
        self._clock = clock
        self._leavers = TerminatingPods(state, clock=clock, wall=wall)
        self._log = log
        self._records: dict[UnitKey, ActivePreemption] = {}
        self._waiting_for: dict[str, set[UnitKey]] = {}
        self._grudges: dict[str, float] = {}
        self._fallen: dict[UnitKey, None] = {}
        self.again: Callable[[UnitKey], None] = lambda _: None
        """Called with a root whose plan has fallen, for it to be attempted after a while."""
        self.woken: Callable[[], None] = lambda: None
        """Called when a root is to be attempted at once."""

    def record(self, root: UnitKey) -> ActivePreemption | None:
        """Return the plan that is under way for a root."""
        return self._records.get(root)

    def awaits(self, pod: Pod) -> bool:
        """Tell whether a plan waits for a pod to go."""
        return pod.metadata.uid in self._waiting_for

    def ignored_by(self, root: UnitKey, ready: SchedulableUnit) -> tuple[str, ...]:
        """Return the ghosts that a root need not mind."""
        return self._state.reservations.ignored_by(root, ready.priority)

    # What the driver tells.

    def absorb(self, news: ClusterEvents) -> list[UnitKey]:
        """Take the news; return the roots that are to be attempted at once."""
        found: dict[UnitKey, None] = {}
        self._leavers.note(news.terminating_pods)
        self._leavers.forget(news.removed_pods)
        for uid in news.removed_pods & self._waiting_for.keys():
            for root in self._waiting_for.pop(uid):
                record = self._records[root]
                record.victims.discard(uid)
                record.is_partial = True
                if not record.victims:
                    found[root] = None
        for root, record in list(self._records.items()):
            if root in news.changed_units or self._state.current_unit(root) != root:
                self._review(record)
            if not news.changed_nodes.isdisjoint(record.nominations.values()) and not self._holds(record):
                self._break(record, "a node of it is gone, or takes no such pods any more")
        found.update((root, None) for root in self._fallen if root in self._records)
        self._fallen.clear()
        return list(found)

    def placed(self, root: UnitKey, nodes: Mapping[str, str]) -> None:
        """Take pods of a root, by UID, as placed at these nodes: they hold room of their own from now on."""
        record = self._records.get(root)
        for uid in nodes:
            self._state.reservations.remove(uid)
        if record is None or not nodes:
            return
        record.pods -= nodes.keys()
        left = {uid: record.nominations.pop(uid) for uid in nodes if uid in record.nominations}
        record.freed = [seat for uid, seat in left.items() if seat != nodes[uid]]
        if not record.nominations:
            self._end(record)
        elif not record.is_committed:
            self._break(record, "some of its pods have been placed without it")

    def seated(self, root: UnitKey) -> None:
        """See to it that those who are left have a seat, now that those who are placed have theirs.

        Who was placed where another was nominated leaves it the node that was kept for himself.
        """
        record = self._records.get(root)
        if record is None or not record.freed or record.is_broken:
            return
        moves = renominate(self._state, record, self._leavers.going(self._waiting_for))
        record.freed = []
        for uid, node in moves.items():
            self._seat(record, uid, node)
        self._tell_seats(record, moves)

    def unplaced(self, root: UnitKey, nodes: Mapping[str, str]) -> None:
        """Keep the room that nominated pods, by UID, were given, though their binds have failed after all.

        Others would come in while the root backs off, and have to be evicted as well. Who has left the tree meanwhile
        is nominated no more.
        """
        known = (self._state.pods.get(uid) for uid in nodes)
        nominated = [pod for pod in known if pod is not None and pod.status.nominated_node_name]
        here = {pod.metadata.uid for pod in pending_pods(self._state, root)}
        had = {pod.metadata.uid: nodes[pod.metadata.uid] for pod in nominated if pod.metadata.uid in here}
        self._evictor.clear(pod for pod in nominated if pod.metadata.uid not in here and self._state.is_pending(pod))
        record = self._records.get(root)
        if had and record is not None and not record.is_committed:
            self._break(record, "a bind of its root has failed meanwhile")
            self._end(record)
            record = None
        if had and record is None:
            self._take_up(root, had)
        record = self._records.get(root)
        if record is None or record.is_broken:
            return
        for uid, node in had.items():
            if takes(self._state, node, uid):
                record.pods.add(uid)
                self._seat(record, uid, node)
        self._tell_seats(record, had)

    def _seat(self, record: ActivePreemption, uid: str, node: str) -> None:
        record.nominations[uid] = node
        self._state.reservations.put(self._state.pods[uid], Reservation(node, record.root, record.priority))

    def _tell_seats(self, record: ActivePreemption, uids: Iterable[str]) -> None:
        """Nominate pods where they are seated, as far as the API server has it otherwise."""
        found = ((self._state.pods[uid], node) for uid in uids if (node := record.nominations.get(uid)) is not None)
        self._evictor.move((pod, node) for pod, node in found if pod.status.nominated_node_name != node)

    def end(self, root: UnitKey) -> None:
        """Drop the plan of a root that cannot be tried any more."""
        record = self._records.get(root)
        if record is not None:
            self._end(record)

    def could_help(self, ready: SchedulableUnit) -> bool:
        """Tell whether there is anybody whom this root could evict."""
        return ready.preempts and bool(self._state.victims.units(ready.priority))

    def answer(
        self, root: UnitKey, ready: SchedulableUnit, decision: Decision, left: Mapping[str, Pod]
    ) -> PreemptionResult:
        """Return what becomes of the pods that were left: a plan goes on, or is begun, or there is none."""
        record = self._records.get(root)
        waits = record is not None and bool(record.victims) and not record.is_broken
        if record is not None and waits and (record.evicts - record.begun or not self._leavers.late(record.victims)):
            return _waiting(record, "Ongoing", len(record.victims))
        answer = self._attempt(root, ready, decision, left)
        if record is None or self._records.get(root) is not record:
            return answer
        if waits:
            return _waiting(record, "Overdue", len(record.victims))
        self._end(record)
        return answer

    def _attempt(
        self, root: UnitKey, ready: SchedulableUnit, decision: Decision, left: Mapping[str, Pod]
    ) -> PreemptionResult:
        """Plan, if evicting could help and is allowed."""
        if not is_due(decision, left):
            return NOTHING
        if not ready.preempts:
            return PreemptionResult(outlook=forbidden_preemption(root.key.kind))
        return self._plan(root, ready, left)

    def recover(self) -> None:
        """Take up the plans of the leader before, from what the API server shows."""
        nominated: dict[UnitKey, dict[str, str]] = {}
        for uid, pod in self._state.pods.items():
            if pod.status.nominated_node_name and self._state.is_pending(pod):
                nominated.setdefault(self._state.unit_of(pod), {})[uid] = pod.status.nominated_node_name
        for root, nodes in nominated.items():
            self._take_up(root, nodes)
        for found in orphaned(self._state, {record.preemptor.uid for record in self._records.values()}):
            self._carry_through(found)

    # A plan begins.

    def explain(self, root: UnitKey, ready: SchedulableUnit) -> PreemptionPlan:
        """Return the plan that would be made for a root now."""
        units = self._state.victims.units(ready.priority, self._spared())
        if not units and not self._leavers.going(self._waiting_for):
            return PreemptionPlan(outcome=PlanOutcome.NO_VICTIMS)
        return plan_for(
            self._state.snapshot,
            ready.unit,
            self._options,
            priority=ready.priority,
            units=units,
            budgets=self._state.budgets.current(),
            ignored=(*self.ignored_by(root, ready), *self._leavers.going(self._waiting_for)),
        )

    def _plan(self, root: UnitKey, ready: SchedulableUnit, left: Mapping[str, Pod]) -> PreemptionResult:
        """Plan, and begin to perform the plan, if there is one."""
        began = self._clock()
        plan = self.explain(root, ready)
        kind = root.key.kind
        self._metrics.preemption.planned(kind.lower(), plan, self._clock() - began)
        waits = self._needed(root, ready, plan)
        if plan.outcome is not PlanOutcome.PLANNED or not (plan.evictions or waits):
            hopes = plan.explanation is not None and plan.explanation.finding in UNPROVEN
            return PreemptionResult(outlook=vain_preemption(kind, plan), hopes=hopes, outcome=plan.outcome.value)
        record = self._begin(root, ready, plan, waits)
        self._perform(record, left)
        return _waiting(record, plan.outcome.value, count_of(plan))

    def _needed(self, root: UnitKey, ready: SchedulableUnit, plan: PreemptionPlan) -> set[str]:
        """Return who is going anyway, and has to: from the nodes of a plan, or from anywhere if that is not enough.

        Somebody whom the preemptor must not meet can be in its way from another node.
        """
        if plan.outcome is not PlanOutcome.PLANNED:
            return set()
        nodes, going = {found.node for found in plan.nominations}, self._leavers.going(self._waiting_for)
        near = {uid for uid in going if self._state.pods[uid].spec.node_name in nodes}
        if near == going:
            return near
        evicts = (uid for eviction in plan.evictions for uid in eviction.unit.pods)
        ignored = (*self.ignored_by(root, ready), *evicts, *near)
        found = decide(self._state.snapshot, ready.unit, self._options, ignored=ignored)
        return near if len(found.binds) >= len(plan.nominations) else going

    def _begin(
        self, root: UnitKey, ready: SchedulableUnit, plan: PreemptionPlan, waits: Collection[str]
    ) -> ActivePreemption:
        """Keep the plan in mind, and its room, in place of the one before."""
        self._replace(root, plan)
        evicts = frozenset(uid for eviction in plan.evictions for uid in eviction.unit.pods)
        record = ActivePreemption(
            root=root,
            preemptor=preemptor_of(ready),
            priority=ready.priority,
            pods=set(ready.pods),
            nominations={found.uid: found.node for found in plan.nominations},
            evicts=evicts,
            victims={*evicts, *waits},
            plan=plan,
            allowed=self._state.budgets.allowed_after(self._state.pods[uid] for uid in evicts),
        )
        record.seats = self._seats(record)
        self._keep(record)
        self._state.budgets.spend(self._state.pods[uid] for uid in evicts)
        self._log.info(
            "preempting",
            root=str(root.key),
            flavour=root.flavour,
            victims=[
                in_log(self._state.pods, eviction.unit, eviction_message(eviction.reason))
                for eviction in plan.evictions
            ],
            violated=sorted({name for eviction in plan.evictions for name in eviction.violates}),
            nominated={self._state.pods[uid].metadata.key: node for uid, node in record.nominations.items()},
            considered=plan.considered,
            domains=plan.domains,
            exhausted=plan.exhausted,
        )
        return record

    def _replace(self, root: UnitKey, plan: PreemptionPlan) -> None:
        """Forget the plan that a root had; who is nominated once more is not told in between that it is not."""
        before = self._records.get(root)
        if before is None:
            return
        again = {found.uid for found in plan.nominations}
        for uid in before.nominations:
            self._state.reservations.remove(uid)
        self._evictor.clear(
            self._state.pods[uid] for uid in before.nominations.keys() - again if uid in self._state.pods
        )
        self._forget(root)

    def _keep(self, record: ActivePreemption) -> None:
        self._records[record.root] = record
        for uid in record.victims:
            self._waiting_for.setdefault(uid, set()).add(record.root)
        for uid, node in record.nominations.items():
            self._state.reservations.put(self._state.pods[uid], Reservation(node, record.root, record.priority))

    def _perform(self, record: ActivePreemption, left: Mapping[str, Pod]) -> None:
        plan = record.plan
        if plan is None:
            return
        state = self._state
        self._order(
            record,
            victims=[
                Victim(
                    [state.pods[uid] for uid in one.unit.pods],
                    eviction_message(one.reason),
                    state.victims.groups_of(one.unit),
                )
                for one in plan.evictions
            ],
            nominations=[(left[uid], node) for uid, node in record.nominations.items()],
        )

    def _order(
        self,
        record: ActivePreemption,
        *,
        victims: Sequence[Victim],
        nominations: Sequence[tuple[Pod, str]] = (),
        known: bool = False,
    ) -> None:
        def refused(pod: Pod, error: ClientError) -> None:
            self._refused(record, pod, error)

        self._evictor.start(
            EvictionJob(
                preemptor=record.preemptor,
                victims=victims,
                nominations=nominations,
                stands=lambda: known or self._stands(record),
                commit=lambda: known or self._commit(record),
                refused=refused,
                known=known,
                begins=always if known else lambda victim: self._begins(record, victim),
            )
        )

    def _spared(self) -> set[str]:
        """Return the pods that are not to be planned with: they are going, or must not."""
        now = self._clock()
        self._grudges = {uid: until for uid, until in self._grudges.items() if until > now}
        return self._waiting_for.keys() | self._grudges.keys() | self._leavers.doomed

    # A plan goes on, and ends.

    def _stands(self, record: ActivePreemption) -> bool:
        """Tell whether a plan is to be carried on: the rest of a unit that has begun to go is, whatever happens."""
        return record.is_committed or self._is_current(record)

    def _is_current(self, record: ActivePreemption) -> bool:
        return self._records.get(record.root) is record and not record.is_broken

    def _begins(self, record: ActivePreemption, victim: Victim) -> Sequence[Pod] | None:
        """Return who of a unit is to go, if it is still to be evicted; from then on it is, whole."""
        unit = [pod.metadata.uid for pod in victim.pods]
        if not (record.is_committed and self._is_current(record)):
            return None
        if is_other(self._state, unit, record.priority):
            self._give_up(record, "one of its victims goes with others by now, or is more important")
            return None
        record.begun.update(unit)
        return who_stays(self._state, unit)

    def _commit(self, record: ActivePreemption) -> bool:
        """Look at a plan once more before anybody is evicted."""
        if not self._stands(record) or record.plan is None:
            return False
        problem = validate_plan(self._state, record, self._options)
        if problem == ROOM:
            self._break(record, problem)
            self.woken()
            return False
        if problem or not self._holds(record):
            self._give_up(record, problem or "it would make too little room by now")
            return False
        record.is_committed = True
        return True

    def _give_up(self, record: ActivePreemption, why: str) -> None:
        """Break a plan, and have its root attempted again after a while."""
        self._break(record, why, at_once=False)
        self.again(record.root)

    def _review(self, record: ActivePreemption) -> None:
        """Hold a plan against the pods that wait for it now."""
        waiting = {pod.metadata.uid for pod in pending_pods(self._state, record.root)}
        if self._state.current_unit(record.root) != record.root or waiting.isdisjoint(record.nominations):
            self._end(record)
        elif waiting - record.pods or record.nominations.keys() - waiting:
            self._break(record, "its pods are others now")

    def _holds(self, record: ActivePreemption) -> bool:
        """Tell whether the nodes of a plan still take the pods that are nominated to them, and all of them together."""
        nodes_do = all(takes(self._state, node, uid) for uid, node in record.nominations.items())
        return nodes_do and self._seats(record) >= min(record.seats, len(record.nominations))

    def _seats(self, record: ActivePreemption) -> int:
        """Return how many would be placed by a plan, where those whose ghosts it does not pass make their own room."""
        others = (one for one in self._records.values() if one is not record and one.priority >= record.priority)
        return count_assignments(self._state, record, {uid for one in others for uid in one.victims}, self._options)

    def _refused(self, record: ActivePreemption, pod: Pod, error: ClientError) -> None:
        """Drop the plan: somebody must not be evicted."""
        self._grudges[pod.metadata.uid] = self._clock() + GRUDGE
        self._leavers.forget(record.begun)
        record.is_committed = False
        if self._records.get(record.root) is record and not record.is_broken:
            self._give_up(record, f"Pod {pod.metadata.key} is not to be evicted: {error}")
        else:
            self._abandon(record)  # another plan, of this root or another, may count on the same pods

    def _break(self, record: ActivePreemption, why: str, *, at_once: bool = True) -> None:
        """Keep no room for a plan any more; who is going for it goes."""
        if record.is_broken:
            return
        if at_once:
            self._fallen[record.root] = None
        self._log.warning("plan broken", root=str(record.root.key), flavour=record.root.flavour, why=why)
        record.is_broken = True
        self._release(record)
        self._abandon(record)

    def _abandon(self, record: ActivePreemption) -> None:
        """Let those stay that were to be evicted and have not been begun; who counted on their room must plan anew."""
        left = record.evicts - record.begun if record.is_committed else record.evicts
        known = ((uid, self._state.pods.get(uid)) for uid in left)
        record.evicts -= left
        staying = [uid for uid, pod in known if pod is not None and not pod.is_terminating]
        self._state.budgets.refund(staying)
        self._unwatch(record, record.victims - record.begun if record.is_committed else record.victims)
        for uid in staying:
            for root in tuple(self._waiting_for.get(uid, ())):
                self._break(self._records[root], "a plan that it counted on has been dropped")

    def _end(self, record: ActivePreemption) -> None:
        self._release(record)
        self._forget(record.root)

    def _release(self, record: ActivePreemption) -> None:
        """Take the room of a plan back, and nominate nobody any more."""
        for uid in record.nominations:
            self._state.reservations.remove(uid)
        waiting = [self._state.pods[uid] for uid in record.nominations if uid in self._state.pods]
        if record.is_committed or record.plan is None:
            self._evictor.clear(pod for pod in waiting if self._state.is_pending(pod))
        record.nominations = {}

    def _forget(self, root: UnitKey) -> None:
        record = self._records.pop(root, None)
        if record is not None:
            self._abandon(record)
            if record.is_committed:
                self._leavers.doomed |= record.begun & record.victims
            self._unwatch(record, record.victims)

    def _unwatch(self, record: ActivePreemption, victims: Collection[str]) -> None:
        for uid in victims:
            roots = self._waiting_for.get(uid)
            if roots is not None:
                roots.discard(record.root)
                if not roots:
                    del self._waiting_for[uid]
        record.victims = record.victims - set(victims)

    # After a restart.

    def _take_up(self, root: UnitKey, nodes: dict[str, str]) -> None:
        ready = build_unit(self._state, root) if queue_key_of(self._state, root) is not None else None
        if not isinstance(ready, SchedulableUnit):
            self._evictor.clear(self._state.pods[uid] for uid in nodes)
            return
        found = left_behind(self._state, root, ready, nodes)
        record = found.record
        self._keep(record)
        self._state.budgets.spend(pod for victim in found.begun for pod in victim.pods if not pod.is_terminating)
        self._log.info(
            "preemption taken up",
            root=str(root.key),
            flavour=root.flavour,
            victims=len(record.victims),
            dropped=len(found.staying),
        )
        self._evictor.retract(found.staying)
        if found.begun:
            self._order(record, victims=found.begun, known=True)
        if found.staying or not all(takes(self._state, node, uid) for uid, node in nodes.items()):
            self._break(record, "it was interrupted before all its victims had been told to go")

    def _carry_through(self, found: OrphanedPreemption) -> None:
        """End what was begun for a preemptor that is gone: a unit goes whole, or not at all."""
        if not (found.begun or found.staying):
            return
        self._log.info(
            "preemption carried through",
            root=str(found.preemptor.key),
            victims=sum(len(victim.pods) for victim in found.begun),
            dropped=len(found.staying),
        )
        self._state.budgets.spend(pod for victim in found.begun for pod in victim.pods)
        self._evictor.retract(found.staying, found.groups)
        if not found.begun:
            return
        self._evictor.start(
            EvictionJob(
                preemptor=found.preemptor,
                victims=found.begun,
                nominations=(),
                stands=lambda: True,
                commit=lambda: True,
                refused=lambda pod, _: self._state.budgets.refund((pod.metadata.uid,)),
                known=True,
            )
        )


def _waiting(record: ActivePreemption, outcome: str, victims: int) -> PreemptionResult:
    """Return what is answered while a plan is under way."""
    nominated = frozenset(record.nominations)
    return PreemptionResult(
        outlook=outlook_of(record), waits=True, outcome=outcome, victims=victims, nominated=nominated
    )
