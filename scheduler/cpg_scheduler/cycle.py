"""The cycle driver: take the news, pop a root, let the engine decide, have it performed.

Cycles follow each other on one task, so that every decision sees all decisions before it: binds are assumed before
they are sent, and sending never holds up the next cycle.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial

from msgspec.structs import replace
from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_api.scheduling.names import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.verdicts import Explanation, Finding
from cpg_scheduler.binding.binder import REASON_WAITING, BindBatch, Binder, BindFailure
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import Metrics
from cpg_scheduler.preemption.machine import Preemption
from cpg_scheduler.preemption.states import NOTHING, PreemptionResult
from cpg_scheduler.preemption.terminating import SLACK
from cpg_scheduler.queueing.hints import ANYTHING, FailedAttempt
from cpg_scheduler.queueing.requeue import Requeuer
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue
from cpg_scheduler.status.conditions import StatusWriter
from cpg_scheduler.status.messages import causes, group_messages, pod_messages, refusals
from cpg_scheduler.status.resync import bound_of, is_theirs, recovered, standing_of
from cpg_scheduler.units import Inadmissible, SchedulableUnit, build_unit, pending_pods, queue_key_of

BREATH = 0.02
"""Seconds of cycles after which the watches and the binds get their turn."""
LULL = 0.005
"""Seconds for which news are gathered when the last were about nobody who could be attempted: while thousands leave."""


class SchedulingLoop:
    """Runs cycles for as long as there is somebody to attempt, and sleeps until there is."""

    def __init__(  # noqa: PLR0913 - it is where all parts come together, each by its name
        self,
        state: ClusterCache,
        pending: SchedulingQueue,
        *,
        binder: Binder,
        preemption: Preemption,
        reporter: StatusWriter,
        metrics: Metrics,
        options: SearchOptions,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
        announce: Callable[[Pod, str], None] = lambda *_: None,
    ) -> None:
        """Wire up; nothing runs yet. ``announce`` is told of every pod that has been bound, and to which node."""
        self._announce = announce
        self._state = state
        self._pending = pending
        self._rouser = Requeuer(state, pending)
        self._binder = binder
        self._preemption = preemption
        preemption.again = self._again
        preemption.woken = self.wake
        self._reporter = reporter
        self._metrics = metrics
        self._options = options
        self._clock = clock
        self._log = log
        self._news = asyncio.Event()
        self._under_way: dict[str, SchedulableUnit] = {}
        """Of the pods, by UID, of which it is not known yet whether they are bound: by which attempt they are to be."""

    def wake(self) -> None:
        """Tell that the state has changed."""
        self._news.set()

    def waits(self, pod: Pod, reason: str) -> bool:
        """Tell whether it is still true that a pod has no node for this reason."""
        uid, known = pod.metadata.uid, self._state.pods.get(pod.metadata.uid)
        if known is None or not known.spec.node_name:
            return known is not None
        return reason == REASON_WAITING and uid in self._under_way

    async def run(self) -> None:
        """Drive until cancelled."""
        self._preemption.recover()
        while True:
            began, cycles = self._clock(), 0
            while self._cycle():
                cycles += 1
                if self._clock() - began > BREATH:
                    await asyncio.sleep(0)
                    began = self._clock()
            await self._sleep(0.0 if cycles else LULL)

    async def _sleep(self, lull: float = 0.0) -> None:
        """Wait for news, and for more to come with them, or for the first backoff to end."""
        wake = self._pending.next_wake()
        timeout = None if wake is None else max(wake - self._clock(), 0.0)
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return
        if lull:
            await asyncio.sleep(lull)
        self._news.clear()

    def _cycle(self) -> bool:
        """Run one cycle; return whether there was anybody to attempt, or to be told."""
        now = self._clock()
        for freed in self._preemption.absorb(self._rouser.absorb(now)):
            self._put(freed)
        root = self._rouser.next(now)
        if root is None:
            return self._retell() or self._speak()
        self._guard(root, self._try)
        return True

    def _guard(self, root: UnitKey, act: Callable[[UnitKey], None]) -> None:
        """Do something about a root; a mistake of ours about one tree must not stop all others."""
        try:
            act(root)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._broken(root, error)

    def _try(self, root: UnitKey) -> None:
        """Attempt a root, unless that is not to be or the answer is known already."""
        attempt = build_unit(self._state, root)
        if isinstance(attempt, Inadmissible):
            self._refuse(root, attempt)
        elif self._preemption.record(root) is not None or not self._pending.share(root, attempt.signature):
            self._attempt(root, attempt)
            self._retell()

    def _attempt(self, root: UnitKey, ready: SchedulableUnit) -> None:
        """Let the engine decide about a root, and see to it."""
        began = self._clock()
        ignored = self._preemption.ignored_by(root, ready)
        decision = decide(self._state.snapshot, ready.unit, self._options, ignored=ignored)
        finding = decision.explanation.finding
        seconds = self._clock() - began
        nodes = {bind.uid: bind.node for bind in decision.binds}
        left = {uid: pod for uid, pod in ready.pods.items() if uid not in nodes}
        self._preemption.placed(root, nodes)
        answer = self._preemption.answer(root, ready, decision, left)
        result = self._metrics.attempted(
            finding, seconds, waits=answer.waits, placed=len(nodes), left=len(left), tries=decision.placements
        )
        self._log_attempt(root, ready, decision, seconds=seconds, answer=answer)
        if left:
            failure = _failure(ready, ready.failure(self._state.snapshot, decision, left), answer)
            if ready.preempts:
                self._rouser.below = max(self._rouser.below or ready.priority, ready.priority)
            self._pending.fail(root, len(ready.pods), self._clock(), failure)
        else:
            self._pending.bind(root)
        self._tell(ready, decision.explanation, left, answer)
        self._metrics.ended(result, self._clock() - began)
        # From here on nothing may go wrong: what is assumed has to be bound, or its room is lost.
        for bind in decision.binds:
            self._state.assume(bind.uid, bind.node, bind.allocations)
            self._under_way[bind.uid] = ready
        if nodes:
            self._binder.start(
                BindBatch(
                    root=root,
                    pods={uid: ready.pods[uid] for uid in nodes},
                    nodes=nodes,
                    placed=lambda: self._tell_placed(root, ready, decision, began),
                    failed=lambda trouble: self._failed(root, ready, decision, trouble),
                    waits=lambda trouble: self._tell_unbound(root, ready, decision.explanation, trouble),
                    allocations=tuple(found for bind in decision.binds for found in bind.allocations),
                )
            )
        elif finding is Finding.PLACED:
            # Nobody is to be bound, but an earlier leader may have bound them and not come to say so.
            self._tell_met(root)
        self._preemption.seated(root)

    def _log_attempt(
        self, root: UnitKey, ready: SchedulableUnit, decision: Decision, *, seconds: float, answer: PreemptionResult
    ) -> None:
        preemption = {"preemption": answer.outcome, "victims": answer.victims} if answer.outcome else {}
        self._log.info(
            "attempt",
            root=str(root.key),
            flavour=root.flavour,
            finding=decision.explanation.finding.value,
            pods=len(ready.pods),
            binds=len(decision.binds),
            milliseconds=round(seconds * 1000, 3),
            **preemption,
        )

    def _tell(
        self, ready: SchedulableUnit, explanation: Explanation, left: Mapping[str, Pod], answer: PreemptionResult
    ) -> None:
        """Report what was not placed: to each pod that waits, and to each group below its minimum."""
        is_contradiction = explanation.finding is Finding.CONTRADICTION
        reason = REASON_SCHEDULER_ERROR if is_contradiction else REASON_UNSCHEDULABLE
        told, refused = pod_messages(explanation, answer.outlook), refusals(explanation)
        why = causes(explanation, answer.outlook)
        for pod in left.values():
            # A pod that is alone is the one that there is a sentence for.
            key = self._state.group_of(pod) or explanation.reports[0].key
            say = self._reporter.nominated if pod.metadata.uid in answer.nominated else self._reporter.pod
            own = refused.get(pod.metadata.uid)
            say(pod, reason, own or told[key], cause=own or why[key])
        messages = group_messages(explanation, answer.outlook)
        for group in ready.groups:
            key = key_of(group)
            if messages.get(key):
                self._reporter.group(group, scheduled=False, reason=reason, message=messages[key], cause=why[key])

    def _retell(self) -> bool:
        """Tell one root what was found for another that is alike; return whether there was one to be told.

        This is what is done when there is nothing else to do, and after each attempt, so that it is never put off
        for ever.
        """
        found = self._pending.untold()
        if found is None:
            return False
        root, shared = found
        self._guard(root, lambda known: self._tell_shared(known, shared))
        return True

    def _tell_shared(self, root: UnitKey, shared: FailedAttempt) -> None:
        attempt = build_unit(self._state, root)
        explanation = shared.explained_for(attempt.unit) if isinstance(attempt, SchedulableUnit) else None
        if isinstance(attempt, SchedulableUnit) and explanation is not None:
            self._tell(attempt, explanation, attempt.pods, PreemptionResult(outlook=shared.outlook))

    def _speak(self) -> bool:
        """Look at a tree in which nobody waits: what its groups say may not be true any more, or not be said yet."""
        root = self._rouser.quiet()
        if root is None:
            return False
        self._guard(root, self._tell_standing)
        return True

    def _tell_standing(self, root: UnitKey) -> None:
        if is_theirs(self._state, root):
            self._tell_back(root)
            return
        standing = standing_of(self._state, root)
        if isinstance(standing, Inadmissible):
            self._tell_refused(standing)
        elif standing is not None:
            explanation = decide(self._state.snapshot, standing.unit, self._options).explanation
            self._tell(standing, explanation, {}, NOTHING)
            if explanation.finding is Finding.PLACED:
                self._tell_met(root)

    def _tell_placed(self, root: UnitKey, ready: SchedulableUnit, decision: Decision, began: float) -> None:
        """Report the groups whose minimum is bound now."""
        self._pending.bound(root)
        self._land(ready, decision)
        top = ready.groups[0] if ready.groups else next(iter(ready.pods.values()))
        kind, created = "podgroup" if ready.groups else "pod", top.metadata.creation_timestamp
        self._metrics.placed(kind, len(decision.binds), seconds=self._clock() - began, created=created)
        self._log.info("bound", root=str(root.key), flavour=root.flavour, binds=len(decision.binds))
        for bind in decision.binds:
            self._announce(ready.pods[bind.uid], bind.node)
        self._tell_met(root)
        if len(decision.binds) < len(ready.pods) and self._preemption.could_help(ready):
            # Who was left may evict others, now that nobody of the tree is to be bound in the same cycle.
            self._put(root)

    def _land(self, ready: SchedulableUnit, decision: Decision) -> None:
        """Note that it is known of all binds of an attempt what has become of them."""
        for bind in decision.binds:
            if self._under_way.get(bind.uid) is ready:
                del self._under_way[bind.uid]

    def _tell_met(self, root: UnitKey) -> Collection[GroupKey]:
        """Report the groups whose minimum is bound, as they are by now, and return which these are."""
        bound = bound_of(self._state, root, self._under_way)
        for group in bound.values():
            self._reporter.group(group, scheduled=True, reason="", message="")
        self._tell_back(root)
        return bound

    def _tell_back(self, root: UnitKey) -> None:
        """Report the groups that went as a whole and have their minimum again."""
        for key, group in self._back(root).items():
            self._reporter.recovered(group, partial(self._is_back, root, key))

    def _back(self, root: UnitKey) -> dict[GroupKey, Group]:
        """Return the groups that say that they go as a whole, and have their minimum again."""
        found = {key_of(group): group for group in recovered(self._state, root, self._preemption.awaits)}
        bound = bound_of(self._state, root, self._under_way) if found else {}
        return {key: group for key, group in found.items() if key in bound}

    def _is_back(self, root: UnitKey, key: GroupKey) -> bool:
        return key in self._back(root)

    def _failed(self, root: UnitKey, ready: SchedulableUnit, decision: Decision, trouble: BindFailure) -> None:
        """Attempt a root again after some of its binds failed; those that did not fail hold their domains."""
        self._land(ready, decision)
        nodes = {bind.uid: bind.node for bind in decision.binds}
        self._preemption.unplaced(root, {uid: nodes[uid] for uid in trouble.uids})
        order = queue_key_of(self._state, root)
        if order is None:
            self._pending.bound(root)
        elif trouble.at_once:
            self._pending.put(order)
        else:
            self._pending.retry(order, len(trouble.uids), self._clock())
        self._tell_unbound(root, ready, decision.explanation, trouble)
        self.wake()

    def _tell_unbound(
        self, root: UnitKey, ready: SchedulableUnit, explanation: Explanation, trouble: BindFailure
    ) -> None:
        """Report why pods that have been given a node are not bound to it, or not yet.

        And so to the groups that would have their minimum with them; what keeps others from it, these have been told.
        """
        bound = self._tell_met(root)
        if not trouble.message:
            return
        cause = trouble.message.partition(": ")[2]  # after what is said of pods and nodes
        for uid in trouble.uids:
            self._reporter.pod(ready.pods[uid], trouble.reason, trouble.message, cause=cause)
        reason = REASON_SCHEDULER_ERROR if trouble.reason == REASON_SCHEDULER_ERROR else REASON_UNSCHEDULABLE
        messages = group_messages(explanation)
        for group in ready.groups:
            key = key_of(group)
            if key not in bound and not messages.get(key, "failed"):
                self._reporter.group(group, scheduled=False, reason=reason, message=trouble.message, cause=cause)

    def _put(self, root: UnitKey) -> None:
        """Have a root attempted at once, if anybody waits in it."""
        order = queue_key_of(self._state, root)
        if order is not None:
            self._pending.put(order)
            self.wake()

    def _again(self, root: UnitKey) -> None:
        """Attempt a root after a while: its plan has fallen."""
        order = queue_key_of(self._state, root)
        if order is not None:
            self._pending.retry(order, 1, self._clock())
            self.wake()

    def _broken(self, root: UnitKey, error: Exception) -> None:
        """Say that a root made the scheduler fail, and leave it alone for a while."""
        self._log.error("attempt failed", root=str(root.key), flavour=root.flavour, exc_info=error)
        self._pending.fail(root, 1, self._clock(), FailedAttempt(hope=ANYTHING))
        self._metrics.held(REASON_SCHEDULER_ERROR)
        self._metrics.mistaken()
        for pod in pending_pods(self._state, root):
            self._reporter.pod(pod, REASON_SCHEDULER_ERROR, f"the scheduler failed at it: {error!r}")

    def _refuse(self, root: UnitKey, refused: Inadmissible) -> None:
        """Report why a root cannot be tried."""
        self._preemption.end(root)
        self._pending.fail(root, len(refused.pods), self._clock(), FailedAttempt())
        self._metrics.held(refused.reason)
        self._log.info("held", root=str(root.key), flavour=root.flavour, reason=refused.reason, why=refused.message)
        for pod in refused.pods:
            if not pod.spec.scheduling_gates:
                pod_reason = REASON_UNSCHEDULABLE if refused.reason != REASON_SCHEDULER_ERROR else refused.reason
                self._reporter.pod(pod, pod_reason, refused.told or refused.message, cause=refused.cause)
        self._tell_refused(refused)

    def _tell_refused(self, refused: Inadmissible) -> None:
        reason, message, cause = refused.reason, refused.message, refused.cause
        for group in refused.groups:
            self._reporter.group(group, scheduled=False, reason=reason, message=message, cause=cause)


def _failure(ready: SchedulableUnit, failure: FailedAttempt, answer: PreemptionResult) -> FailedAttempt:
    """Return what is to be remembered of a failure that preemption has been asked about.

    Who waits for a plan is like nobody else, and anything at all may help: room elsewhere as well as its victims' end.
    """
    if answer.waits:
        return replace(failure, hope=ANYTHING, signature=None, outlook=answer.outlook, review=SLACK)
    if answer.hopes:
        return replace(failure, hope=ANYTHING, outlook=answer.outlook)
    hope = replace(failure.hope, below=ready.priority) if failure.hope is not None and ready.preempts else failure.hope
    return replace(failure, hope=hope, outlook=answer.outlook)
