"""Which interesting states the nights reach: what fails while a preemption, a batch of binds or a write stands where.

It tells whether the nights differ enough, and which combinations none of them has.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from unittest import mock

from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.preemption.states import ActivePreemption, Guard, PreemptionState, Trigger


class StateCounter:
    """Counts states by what failed at the time."""

    def __init__(self, faults: Callable[[], Iterable[str]]) -> None:
        """Begin without states; ``faults`` gives the kinds of those that are active."""
        self.counts: Counter[str] = Counter()
        self._faults = faults

    def install(self) -> None:
        """Count what the scheduler does from now on."""
        put, advance = EventInbox.put, ActivePreemption.advance

        def counted_put(inbox: EventInbox, event: object) -> None:
            self.count(type(event).__name__)
            put(inbox, event)

        def counted_advance(active: ActivePreemption, trigger: Trigger, guard: Guard = Guard.ALWAYS) -> None:
            before: PreemptionState = active.state
            advance(active, trigger, guard)
            self.count(f"preemption {before}, {trigger}: {active.state}")

        mock.patch.object(EventInbox, "put", counted_put).start()
        mock.patch.object(ActivePreemption, "advance", counted_advance).start()

    def count(self, state: str) -> None:
        """Count a state, alone and with each fault that is active."""
        self.counts[state] += 1
        for kind in set(self._faults()):
            self.counts[f"{state} | {kind}"] += 1
