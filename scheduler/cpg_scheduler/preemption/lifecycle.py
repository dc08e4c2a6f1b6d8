"""How a preemption begins, breaks and ends, and what becomes of its reservations, budgets and victims then."""

from collections.abc import Collection

from structlog.typing import FilteringBoundLogger

from cpg_api.core.pod import Pod
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.instructions import Requeue
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.active import ActivePreemptions
from cpg_scheduler.preemption.evictions import Evictions
from cpg_scheduler.preemption.jobs import CancelJob
from cpg_scheduler.preemption.outbox import Outbox
from cpg_scheduler.preemption.states import ActivePreemption, Guard, Trigger
from cpg_scheduler.preemption.terminating import TerminatingPods


class Lifecycle:
    """Changes the states of preemptions, together with what depends on them."""

    def __init__(
        self,
        cache: ClusterCache,
        active: ActivePreemptions,
        terminating: TerminatingPods,
        evictions: Evictions,
        outbox: Outbox,
        *,
        log: FilteringBoundLogger,
    ) -> None:
        """Wire up."""
        self._cache = cache
        self._active = active
        self._terminating = terminating
        self._evictions = evictions
        self._outbox = outbox
        self._log = log
        self._broken: dict[UnitKey, None] = {}

    def take_broken(self) -> list[UnitKey]:
        """Return the units that are to be attempted at once because their preemption broke, each once."""
        found = [unit for unit in self._broken if unit in self._active]
        self._broken.clear()
        return found

    def begin(self, preemption: ActivePreemption, trigger: Trigger) -> None:
        """Add a preemption, with its reservations."""
        preemption.advance(trigger)
        self._active.add(preemption)

    def break_off(
        self,
        preemption: ActivePreemption,
        why: str,
        *,
        at_once: bool = True,
        trigger: Trigger = Trigger.INVALIDATED,
        guard: Guard = Guard.ALWAYS,
    ) -> None:
        """Reserve no room and start no victims any more; have the preemptor attempted at once or after its backoff."""
        if not preemption.is_reserving:
            return
        unit = preemption.unit
        self._log.warning("plan broken", root=str(unit.key), flavour=unit.flavour, why=why)
        self._outbox.clear_nominations(filter(self._cache.is_pending, self._release(preemption)))
        preemption.advance(trigger, guard)
        if at_once:
            self._broken[unit] = None
        self._abandon(preemption)
        if not at_once:
            self._outbox.add(Requeue(unit, at_once=False))

    def refuse(self, preemption: ActivePreemption, why: str) -> None:
        """Count on none of the victims any more: the API server refuses to evict one of them."""
        self._terminating.forget(preemption.started)
        preemption.started = set()
        if preemption.is_reserving:
            self.break_off(preemption, why, at_once=False, trigger=Trigger.REFUSED)
        else:
            preemption.advance(Trigger.REFUSED)
            self._abandon(preemption)

    def end(self, preemption: ActivePreemption) -> None:
        """Remove a preemption, with its reservations."""
        self._outbox.clear_nominations(filter(self._cache.is_pending, self._release(preemption)))
        self._conclude(preemption)

    def replace(self, preemption: ActivePreemption, renominated: Collection[str]) -> None:
        """Remove a preemption for which there is a new plan; the nominations of these pods are written anew by that."""
        nominated = self._release(preemption)
        self._outbox.clear_nominations(pod for pod in nominated if pod.metadata.uid not in renominated)
        self._conclude(preemption)

    def _release(self, preemption: ActivePreemption) -> list[Pod]:
        """Drop the reservations; return the pods that have to lose their nominations.

        While the executor may still be nominating them it is too early for that, so the job is cancelled first.
        """
        nominated = self._active.release(preemption)
        if not self._evictions.is_preparing(preemption.job_id):
            return nominated
        self._outbox.add(CancelJob(preemption.job_id))
        return []

    def _abandon(self, preemption: ActivePreemption) -> None:
        """Let all victims stay that have not been started; a plan that counted on their room breaks as well."""
        unstarted = preemption.unstarted
        known = ((uid, self._cache.pods.get(uid)) for uid in unstarted)
        staying = [uid for uid, pod in known if pod is not None and not pod.is_terminating]
        preemption.victims -= unstarted
        self._cache.budgets.refund(staying)
        self._active.stop_waiting(preemption, preemption.awaited - preemption.started)
        for uid in staying:
            for other in self._active.waiting_for(uid):
                self.break_off(other, "a plan that it counts on has broken")

    def _conclude(self, preemption: ActivePreemption) -> None:
        preemption.advance(Trigger.CONCLUDED)
        self._abandon(preemption)
        self._terminating.expect(preemption.started & preemption.awaited)
        self._active.remove(preemption)
