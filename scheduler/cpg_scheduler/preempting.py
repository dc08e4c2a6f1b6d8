"""Preemption: when it is tried, and what holds while others make room.

The engine plans, the evictor evicts; here is kept, per root, the plan that is under way. The rules:

1. **When.** A root that found no place, but could if others went; or one whose minimum runs and of whose later members
   none was placed in this cycle. So binding and preempting never meet in one cycle. Never for ``Never``.
2. **One plan at a time.** While a victim still takes room no further plan is made, however long it takes to end. The
   root is attempted when there are news, and room elsewhere is taken without evicting more.
3. **Room is kept.** Its pods hold theirs as ghosts, which those that outrank it pass, and nobody else.
4. **Who is going anyway is counted on.** A plan looks at the cluster as if all victims of other plans had gone, with
   the ghosts in their place, and so had those whom anybody else has deleted; it evicts only what is missing then. It
   waits for those of them that it needs, but not for what should have ended a while ago and has not.
5. **A plan breaks** when a node of it is gone or closed, its pods are others now, a victim must not be evicted, a plan
   that it counted on is dropped, or all have gone and it does not fit. What has not been evicted by then is not.
6. **Nothing is remembered that the API does not know**, so that a new leader goes on where the old one stopped.

**Why this ends.** Take a closed system: pods that are evicted come again with the priority they had, nodes stay, and
nobody but us binds. A plan of a root evicts only what is less important. So the most important roots are never evicted,
and nobody passes their ghosts: each plans once, fits when its victims are gone, and plans no more. Suppose that the
roots above some priority have stopped planning and moving. A root of that priority can then lose the room of its
plan to nobody: equals and lesser ones see it taken, and none above takes any more. So it makes one more plan at the
most, and the next priority follows. With n roots of p priorities there is an end to evictions, and two roots never
evict each other: each would have to be the less important.
"""

import datetime as dt
from collections.abc import Callable, Collection, Mapping, Sequence

from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group
from cpg_client.errors import ClientError
from cpg_engine.decisions import Decision
from cpg_engine.gangs.allocation import Options
from cpg_engine.preemption.planning import plan as plan_for
from cpg_engine.preemption.values import Outcome, Plan
from cpg_scheduler.attempting import Ready, attempt_of, order_of, waiting_at
from cpg_scheduler.caches.nominations import Nominated
from cpg_scheduler.caches.state import News, State
from cpg_scheduler.evicting import Evictor, Order, Victim, is_told
from cpg_scheduler.failing import UNPROVEN
from cpg_scheduler.metrics import Metrics
from cpg_scheduler.plans import NOTHING, Answer, Record, count_of, in_log, is_due, outlook_of, preemptor_of
from cpg_scheduler.roots import RootKey
from cpg_scheduler.wording import forbidden_preemption, vain_preemption

SLACK = 30.0
"""Seconds for which a pod that somebody else has deleted is still expected to end when its time is over."""
GRUDGE = 300.0
"""Seconds for which a pod that must not be evicted is left out of plans."""


class Preemption:
    """The plans that are under way."""

    def __init__(
        self,
        state: State,
        evictor: Evictor,
        *,
        metrics: Metrics,
        options: Options,
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
        self._wall = wall
        self._log = log
        self._records: dict[RootKey, Record] = {}
        self._waiting_for: dict[str, set[RootKey]] = {}
        self._grudges: dict[str, float] = {}
        self.again: Callable[[RootKey], None] = lambda _: None
        """Called with a root whose plan has fallen, for it to be attempted after a while."""

    def record(self, root: RootKey) -> Record | None:
        """Return the plan that is under way for a root."""
        return self._records.get(root)

    def awaits(self, pod: Pod) -> bool:
        """Tell whether a plan waits for a pod to go."""
        return pod.metadata.uid in self._waiting_for

    def passed_by(self, root: RootKey, ready: Ready) -> tuple[str, ...]:
        """Return the ghosts that a root need not mind."""
        return self._state.nominations.passed_by(root, ready.priority)

    # What the driver tells.

    def absorb(self, news: News) -> list[RootKey]:
        """Take the news; return the roots that are to be attempted at once."""
        found: dict[RootKey, None] = {}
        for uid in news.gone & self._waiting_for.keys():
            for root in self._waiting_for.pop(uid):
                record = self._records[root]
                record.victims.discard(uid)
                record.is_partial = True
                if not record.victims:
                    found[root] = None
        closed = {node for node in news.eased if not self._is_open(node)} if self._records else set()
        for root, record in list(self._records.items()):
            if root in news.touched or self._state.anchored(root) != root:
                self._review(record)
            if closed and not closed.isdisjoint(record.nominations.values()):
                self._break(record, "a node of the plan is gone or closed")
            if record.is_broken and root in self._records:
                found[root] = None
        return list(found)

    def placed(self, root: RootKey, pods: Collection[str]) -> None:
        """Take pods of a root, by UID, as placed: they hold room of their own from now on."""
        record = self._records.get(root)
        for uid in pods:
            self._state.nominations.drop(uid)
        if record is None or not pods:
            return
        record.pods -= set(pods)
        for uid in pods:
            record.nominations.pop(uid, None)
        if not record.nominations:
            self._end(record)

    def end(self, root: RootKey) -> None:
        """Drop the plan of a root that cannot be tried any more."""
        record = self._records.get(root)
        if record is not None:
            self._end(record)

    def could_help(self, ready: Ready) -> bool:
        """Tell whether there is anybody whom this root could evict."""
        return ready.preempts and bool(self._state.victims(ready.priority))

    def answer(self, root: RootKey, ready: Ready, decision: Decision, left: Mapping[str, Pod]) -> Answer:
        """Return what becomes of the pods that were left: a plan goes on, or is begun, or there is none."""
        record = self._records.get(root)
        if record is not None:
            self._give_up_on_the_late(record)
        if record is not None and record.victims and not record.is_broken:
            return _waiting(record, "Ongoing", len(record.victims))
        if record is not None and not record.victims:
            self._end(record)
        if not is_due(decision, left):
            return NOTHING
        if not ready.preempts:
            return Answer(outlook=forbidden_preemption(root.key.kind))
        return self._plan(root, ready, left)

    def recover(self) -> None:
        """Take up the plans of the leader before, from what the API server shows."""
        nominated: dict[RootKey, dict[str, str]] = {}
        for uid, pod in self._state.pods.items():
            if pod.status.nominated_node_name and self._state.is_ours(pod):
                nominated.setdefault(self._state.root_of(pod), {})[uid] = pod.status.nominated_node_name
        for root, nodes in nominated.items():
            self._take_up(root, nodes)

    # A plan begins.

    def explain(self, root: RootKey, ready: Ready) -> Plan:
        """Return the plan that would be made for a root now."""
        units = self._state.victims(ready.priority, self._spared())
        if not units and not self._waiting_for:
            return Plan(outcome=Outcome.NO_VICTIMS)
        return plan_for(
            self._state.world,
            ready.unit,
            self._options,
            priority=ready.priority,
            units=units,
            budgets=self._state.budgets.all(),
            lifted=(*self.passed_by(root, ready), *self._going()),
        )

    def _plan(self, root: RootKey, ready: Ready, left: Mapping[str, Pod]) -> Answer:
        """Plan, and begin to perform the plan, if there is one."""
        began = self._clock()
        plan = self.explain(root, ready)
        kind = root.key.kind
        self._metrics.preemption.planned(kind.lower(), plan, self._clock() - began)
        waits = self._needed(plan)
        if plan.outcome is not Outcome.PLANNED or not (plan.evictions or waits):
            self.end(root)
            hopes = plan.explanation is not None and plan.explanation.finding in UNPROVEN
            return Answer(outlook=vain_preemption(kind, plan), hopes=hopes, outcome=plan.outcome.value)
        record = self._begin(root, ready, plan, waits)
        self._perform(record, left)
        return _waiting(record, plan.outcome.value, count_of(plan))

    def _needed(self, plan: Plan) -> set[str]:
        """Return who is going anyway from the nodes of a plan."""
        nodes = {found.node for found in plan.nominations}
        return {uid for uid in self._going() if self._state.pods[uid].spec.node_name in nodes}

    def _going(self) -> set[str]:
        """Return whose room will be free without evicting anybody more."""
        now = self._wall()
        return {*self._waiting_for, *(uid for uid, pod in self._state.leaving().items() if now < _end_of(pod))}

    def _give_up_on_the_late(self, record: Record) -> None:
        """Wait no more for who was deleted by others, and has not ended in time."""
        leaving, now = self._state.leaving(), self._wall()
        evicted = {uid for one in self._records.values() for uid in one.evicts}
        late = {uid for uid in record.victims - evicted if uid in leaving and now >= _end_of(leaving[uid])}
        self._unwatch(record, late)

    def _begin(self, root: RootKey, ready: Ready, plan: Plan, waits: Collection[str]) -> Record:
        """Keep the plan in mind, and its room."""
        self._forget(root)
        evicts = frozenset(uid for eviction in plan.evictions for uid in eviction.unit.pods)
        record = Record(
            root=root,
            preemptor=preemptor_of(ready),
            priority=ready.priority,
            pods=set(ready.pods),
            nominations={found.uid: found.node for found in plan.nominations},
            evicts=evicts,
            victims={*evicts, *waits},
            plan=plan,
        )
        self._keep(record)
        for uid in evicts:
            self._state.budgets.spend(self._state.pods[uid])
        self._log.info(
            "preempting",
            root=str(root.key),
            flavour=root.flavour,
            victims=[in_log(self._state.pods, eviction.unit, eviction.reason) for eviction in plan.evictions],
            violated=sorted({name for eviction in plan.evictions for name in eviction.violates}),
            nominated={self._state.pods[uid].metadata.key: node for uid, node in record.nominations.items()},
            considered=plan.considered,
            domains=plan.domains,
            exhausted=plan.exhausted,
        )
        return record

    def _keep(self, record: Record) -> None:
        self._records[record.root] = record
        for uid in record.victims:
            self._waiting_for.setdefault(uid, set()).add(record.root)
        for uid, node in record.nominations.items():
            self._state.nominations.put(self._state.pods[uid], Nominated(node, record.root, record.priority))

    def _perform(self, record: Record, left: Mapping[str, Pod]) -> None:
        plan = record.plan
        if plan is None:
            return
        pods = self._state.pods
        groups = [group for eviction in plan.evictions for group in self._state.groups_of(eviction.unit)]
        self._order(
            record,
            victims=[Victim(pods[uid], eviction.reason) for eviction in plan.evictions for uid in eviction.unit.pods],
            groups=groups,
            nominations=[(left[uid], node) for uid, node in record.nominations.items()],
        )

    def _order(
        self,
        record: Record,
        *,
        victims: Sequence[Victim],
        groups: Sequence[Group] = (),
        nominations: Sequence[tuple[Pod, str]] = (),
        known: bool = False,
    ) -> None:
        def refused(pod: Pod, error: ClientError) -> None:
            self._refused(record, pod, error)

        self._evictor.start(
            Order(
                preemptor=record.preemptor,
                victims=victims,
                groups=groups,
                nominations=nominations,
                stands=lambda: self._stands(record),
                commit=lambda: known or self._commit(record),
                refused=refused,
                known=known,
            )
        )

    def _spared(self) -> set[str]:
        """Return the pods that are not to be planned with: they are going, or must not."""
        now = self._clock()
        self._grudges = {uid: until for uid, until in self._grudges.items() if until > now}
        return self._waiting_for.keys() | self._grudges.keys()

    # A plan goes on, and ends.

    def _stands(self, record: Record) -> bool:
        """Tell whether a plan is to be carried on: what has begun to be evicted is, whole, whatever has happened."""
        return record.is_committed or (self._records.get(record.root) is record and not record.is_broken)

    def _commit(self, record: Record) -> bool:
        """Look at a plan once more before anybody is evicted; from then on it is carried through."""
        if not self._stands(record) or record.plan is None:
            return False
        now = {unit.key: set(unit.pods) for unit in self._state.victims(record.priority)}
        grown = any(now.get(eviction.unit.key, set()) - {*eviction.unit.pods} for eviction in record.plan.evictions)
        if grown or not all(map(self._is_open, record.nominations.values())):
            self._break(record, "the cluster has changed while it was prepared")
            self.again(record.root)
            return False
        record.is_committed = True
        return True

    def _review(self, record: Record) -> None:
        """Hold a plan against the pods that wait for it now."""
        waiting = {pod.metadata.uid for pod in waiting_at(self._state, record.root)}
        if self._state.anchored(record.root) != record.root or waiting.isdisjoint(record.nominations):
            self._end(record)
        elif waiting - record.pods or record.nominations.keys() - waiting:
            self._break(record, "its pods are others now")

    def _is_open(self, node: str) -> bool:
        cluster = self._state.world.ledger.cluster
        row = cluster.row_of.get(node)
        return row is not None and not cluster.unschedulable[row]

    def _refused(self, record: Record, pod: Pod, error: ClientError) -> None:
        """Drop the plan: somebody must not be evicted."""
        self._grudges[pod.metadata.uid] = self._clock() + GRUDGE
        record.is_committed = False
        if self._records.get(record.root) is record:
            self._break(record, f"Pod {pod.metadata.key} is not to be evicted: {error}")
            self.again(record.root)

    def _break(self, record: Record, why: str) -> None:
        """Keep no room for a plan any more; who is going for it goes."""
        if record.is_broken:
            return
        self._log.warning("plan broken", root=str(record.root.key), flavour=record.root.flavour, why=why)
        record.is_broken = True
        self._release(record)
        if not record.is_committed:
            self._abandon(record)

    def _abandon(self, record: Record) -> None:
        """Let those stay that were to be evicted and have not been; who counted on their room must plan anew."""
        known = ((uid, self._state.pods.get(uid)) for uid in record.evicts & record.victims)
        staying = [uid for uid, pod in known if pod is not None and not pod.is_terminating]
        self._unwatch(record, record.victims)
        for uid in staying:
            for root in tuple(self._waiting_for.get(uid, ())):
                self._break(self._records[root], "a plan that it counted on has been dropped")

    def _end(self, record: Record) -> None:
        self._release(record)
        self._forget(record.root)

    def _release(self, record: Record) -> None:
        """Take the room of a plan back, and nominate nobody any more."""
        for uid in record.nominations:
            self._state.nominations.drop(uid)
        waiting = [self._state.pods[uid] for uid in record.nominations if uid in self._state.pods]
        if record.is_committed or record.plan is None:
            self._evictor.clear(pod for pod in waiting if self._state.is_ours(pod))
        record.nominations = {}

    def _forget(self, root: RootKey) -> None:
        record = self._records.pop(root, None)
        if record is None:
            return
        if record.is_committed:
            self._unwatch(record, record.victims)
        else:
            self._abandon(record)

    def _unwatch(self, record: Record, victims: Collection[str]) -> None:
        for uid in victims:
            roots = self._waiting_for.get(uid)
            if roots is not None:
                roots.discard(record.root)
                if not roots:
                    del self._waiting_for[uid]
        record.victims = record.victims - set(victims)

    # After a restart.

    def _take_up(self, root: RootKey, nodes: dict[str, str]) -> None:
        order = order_of(self._state, root)
        ready = attempt_of(self._state, root) if order is not None else None
        if not isinstance(ready, Ready):
            self._evictor.clear(self._state.pods[uid] for uid in nodes)
            return
        preemptor = preemptor_of(ready)
        victims = [pod for pod in self._state.pods.values() if is_told(pod, preemptor.uid) and not pod.is_terminal]
        record = Record(
            root=root,
            preemptor=preemptor,
            priority=ready.priority,
            pods=set(ready.pods),
            nominations=nodes,
            evicts=frozenset(pod.metadata.uid for pod in victims),
            victims={pod.metadata.uid for pod in victims},
            is_committed=True,
        )
        self._keep(record)
        self._log.info("preemption taken up", root=str(root.key), flavour=root.flavour, victims=len(victims))
        why = f"{preemptor.key} needs its place"
        asleep = [Victim(pod, why) for pod in victims if not pod.is_terminating]
        if asleep:
            self._order(record, victims=asleep, known=True)


def _end_of(pod: Pod) -> float:
    """Return when a pod that is being deleted should be gone at the latest."""
    ends = pod.metadata.deletion_timestamp
    return dt.datetime.fromisoformat(ends).timestamp() + SLACK if ends else 0.0


def _waiting(record: Record, outcome: str, victims: int) -> Answer:
    """Return what is answered while a plan is under way."""
    nominated = frozenset(record.nominations)
    return Answer(outlook=outlook_of(record), waits=True, outcome=outcome, victims=victims, nominated=nominated)
