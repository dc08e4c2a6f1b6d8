"""The cycle driver: take the news, pop a root, let the engine decide, have it performed.

Cycles follow each other on one task, so that every decision sees all decisions before it: binds are assumed before
they are sent, and sending never holds up the next cycle.
"""

import asyncio
from collections.abc import Callable, Mapping

from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import key_of
from cpg_api.scheduling.names import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.allocation import Options
from cpg_engine.verdicts import Explanation, Finding
from cpg_scheduler.attempting import Ready, Refused, attempt_of, order_of, waiting_at
from cpg_scheduler.binding import Binder
from cpg_scheduler.binding import Order as BindOrder
from cpg_scheduler.caches.state import State
from cpg_scheduler.failing import ANYTHING, Failure
from cpg_scheduler.metrics import Metrics
from cpg_scheduler.pending import Pending, RootKey
from cpg_scheduler.reporting import Reporter
from cpg_scheduler.rousing import Rouser
from cpg_scheduler.wording import group_messages, pod_messages, refusals

BREATH = 0.02
"""Seconds of cycles after which the watches and the binds get their turn."""


class Driver:
    """Runs cycles for as long as there is somebody to attempt, and sleeps until there is."""

    def __init__(
        self,
        state: State,
        pending: Pending,
        *,
        binder: Binder,
        reporter: Reporter,
        metrics: Metrics,
        options: Options,
        clock: Callable[[], float],
        log: FilteringBoundLogger,
    ) -> None:
        """Wire up; nothing runs yet."""
        self._state = state
        self._pending = pending
        self._rouser = Rouser(state, pending)
        self._binder = binder
        self._reporter = reporter
        self._metrics = metrics
        self._options = options
        self._clock = clock
        self._log = log
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Tell that the state has changed."""
        self._news.set()

    async def run(self) -> None:
        """Drive until cancelled."""
        while True:
            began = self._clock()
            while self._cycle():
                if self._clock() - began > BREATH:
                    await asyncio.sleep(0)
                    began = self._clock()
            await self._sleep()

    async def _sleep(self) -> None:
        """Wait for news, or for the first backoff to end."""
        wake = self._pending.next_wake()
        timeout = None if wake is None else max(wake - self._clock(), 0.0)
        try:
            async with asyncio.timeout(timeout):
                await self._news.wait()
        except TimeoutError:
            return
        self._news.clear()

    def _cycle(self) -> bool:
        """Run one cycle; return whether there was anybody to attempt, or to be told."""
        now = self._clock()
        self._rouser.absorb(now)
        root = self._pending.pop(now)
        if root is None:
            return self._retell()
        self._guard(root, self._try)
        return True

    def _guard(self, root: RootKey, act: Callable[[RootKey], None]) -> None:
        """Do something about a root; a mistake of ours about one tree must not stop all others."""
        try:
            act(root)
        except Exception as error:  # noqa: BLE001 - whatever it is
            self._broken(root, error)

    def _try(self, root: RootKey) -> None:
        """Attempt a root, unless that is not to be or the answer is known already."""
        attempt = attempt_of(self._state, root)
        if isinstance(attempt, Refused):
            self._refuse(root, attempt)
        elif not self._pending.share(root, attempt.likeness):
            self._attempt(root, attempt)
            self._retell()

    def _attempt(self, root: RootKey, ready: Ready) -> None:
        """Let the engine decide about a root, and see to it."""
        began = self._clock()
        decision = decide(self._state.world, ready.unit, self._options)
        finding = decision.explanation.finding
        seconds = self._clock() - began
        self._metrics.attempted(finding, seconds)
        self._log.info(
            "attempt",
            root=str(root.key),
            flavour=root.flavour,
            finding=finding.value,
            pods=len(ready.pods),
            binds=len(decision.binds),
            milliseconds=round(seconds * 1000, 3),
        )
        nodes = {bind.uid: bind.node for bind in decision.binds}
        left = {uid: pod for uid, pod in ready.pods.items() if uid not in nodes}
        if left:
            failure = ready.failure(self._state.world, decision, left)
            self._pending.fail(root, len(ready.pods), self._clock(), failure)
        else:
            self._pending.bind(root)
        self._tell(ready, decision.explanation, left)
        # From here on nothing may go wrong: what is assumed has to be bound, or its room is lost.
        for uid, node in nodes.items():
            self._state.assume(uid, node)
        if nodes:
            self._binder.start(
                BindOrder(
                    pods={uid: ready.pods[uid] for uid in nodes},
                    nodes=nodes,
                    placed=lambda: self._tell_placed(root, ready, decision),
                    failed=lambda: self._failed(root, len(nodes)),
                )
            )
        elif finding is Finding.PLACED:
            # Nobody is to be bound, but an earlier leader may have bound them and not come to say so.
            self._tell_met(ready, decision.explanation)

    def _tell(self, ready: Ready, explanation: Explanation, left: Mapping[str, Pod]) -> None:
        """Report what was not placed: to each pod that waits, and to each group below its minimum."""
        is_contradiction = explanation.finding is Finding.CONTRADICTION
        reason = REASON_SCHEDULER_ERROR if is_contradiction else REASON_UNSCHEDULABLE
        told, refused = pod_messages(explanation), refusals(explanation)
        for pod in left.values():
            # A pod that is alone is the one that there is a sentence for.
            key = self._state.leaf_of(pod) or explanation.reports[0].key
            self._reporter.pod(pod, reason, refused.get(pod.metadata.uid) or told[key])
        messages = group_messages(explanation)
        for group in ready.groups:
            message = messages.get(key_of(group), "")
            if message:
                self._reporter.group(group, scheduled=False, reason=reason, message=message)

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

    def _tell_shared(self, root: RootKey, shared: Failure) -> None:
        attempt = attempt_of(self._state, root)
        explanation = shared.explained_for(attempt.unit) if isinstance(attempt, Ready) else None
        if isinstance(attempt, Ready) and explanation is not None:
            self._tell(attempt, explanation, attempt.pods)

    def _tell_placed(self, root: RootKey, ready: Ready, decision: Decision) -> None:
        """Report the groups whose minimum is bound now."""
        self._pending.bound(root)
        self._log.info("bound", root=str(root.key), flavour=root.flavour, binds=len(decision.binds))
        self._tell_met(ready, decision.explanation)

    def _tell_met(self, ready: Ready, explanation: Explanation) -> None:
        """Report the groups whose minimum has its nodes."""
        messages = group_messages(explanation)
        for group in ready.groups:
            if not messages.get(key_of(group), "failed"):
                self._reporter.group(group, scheduled=True, reason="", message="")

    def _failed(self, root: RootKey, size: int) -> None:
        """Attempt a root again after some of its binds failed; those that did not fail hold their domains."""
        order = order_of(self._state, root)
        if order is not None:
            self._pending.retry(order, size, self._clock())
        else:
            self._pending.bound(root)
        self.wake()

    def _broken(self, root: RootKey, error: Exception) -> None:
        """Say that a root made the scheduler fail, and leave it alone for a while."""
        self._log.error("attempt failed", root=str(root.key), flavour=root.flavour, exc_info=error)
        self._pending.fail(root, 1, self._clock(), Failure(hope=ANYTHING))
        self._metrics.held(REASON_SCHEDULER_ERROR)
        for pod in waiting_at(self._state, root):
            self._reporter.pod(pod, REASON_SCHEDULER_ERROR, f"the scheduler failed at it: {error!r}")

    def _refuse(self, root: RootKey, refused: Refused) -> None:
        """Report why a root cannot be tried."""
        self._pending.fail(root, len(refused.pods), self._clock(), Failure())
        self._metrics.held(refused.reason)
        self._log.info("held", root=str(root.key), flavour=root.flavour, reason=refused.reason, why=refused.message)
        for pod in refused.pods:
            if not pod.spec.scheduling_gates:
                pod_reason = REASON_UNSCHEDULABLE if refused.reason != REASON_SCHEDULER_ERROR else refused.reason
                self._reporter.pod(pod, pod_reason, refused.message)
        for group in refused.groups:
            self._reporter.group(group, scheduled=False, reason=refused.reason, message=refused.message)
