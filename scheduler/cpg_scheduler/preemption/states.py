"""The states of a preemption, and its transitions as a table; docs/concepts/preemption.md shows them as a diagram.

``make generate`` writes that diagram from ``TRANSITIONS``. A transition that is not in the table raises.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct, field

from cpg_api.core.pod import Pod
from cpg_engine.preemption.values import PreemptionPlan
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.jobs import Preemptor


class PreemptionState(StrEnum):
    """Where a preemption stands."""

    NEW = "New"
    PREPARING = "Preparing"
    """Dry runs and nominations are being sent. No victim has been touched."""
    EVICTING = "Evicting"
    """The plan is valid. Its units are evicted, several at a time; some have not been started yet."""
    WAITING = "Waiting"
    """All units have been started. The preemptor waits for pods that terminate."""
    BROKEN = "Broken"
    """No room is reserved any more. Units that have been started are completed, all others stay."""
    DROPPED = "Dropped"
    """No room is reserved, and no victim is expected to terminate."""
    ENDED = "Ended"
    """The preemptor has its place, has another plan, or is gone."""


class Trigger(StrEnum):
    """What changes the state of a preemption."""

    PLANNED = "planned"
    RECOVERED = "found after a restart"
    PREPARED = "prepared"
    STARTED = "unit started"
    INVALIDATED = "invalidated"
    """A node of it is lost, the preemptor's pods or a victim unit have changed, or a plan that it counted on broke."""
    REFUSED = "eviction refused"
    CONCLUDED = "preemptor placed, replanned or gone"


class Guard(StrEnum):
    """What decides between transitions of one trigger."""

    ALWAYS = ""
    UNITS_LEFT = "valid, units left to start"
    ALL_STARTED = "valid, no unit left to start"
    NOT_VALID = "not valid any more"


class Transition(Struct, frozen=True):
    """One row of the table."""

    state: PreemptionState
    trigger: Trigger
    guard: Guard
    target: PreemptionState


S, T, G = PreemptionState, Trigger, Guard
TRANSITIONS = (
    Transition(S.NEW, T.PLANNED, G.ALWAYS, S.PREPARING),
    Transition(S.NEW, T.RECOVERED, G.ALWAYS, S.WAITING),
    Transition(S.PREPARING, T.PREPARED, G.UNITS_LEFT, S.EVICTING),
    Transition(S.PREPARING, T.PREPARED, G.ALL_STARTED, S.WAITING),
    Transition(S.PREPARING, T.PREPARED, G.NOT_VALID, S.DROPPED),
    Transition(S.PREPARING, T.INVALIDATED, G.ALWAYS, S.DROPPED),
    Transition(S.PREPARING, T.REFUSED, G.ALWAYS, S.DROPPED),
    Transition(S.PREPARING, T.CONCLUDED, G.ALWAYS, S.ENDED),
    Transition(S.EVICTING, T.STARTED, G.UNITS_LEFT, S.EVICTING),
    Transition(S.EVICTING, T.STARTED, G.ALL_STARTED, S.WAITING),
    Transition(S.EVICTING, T.INVALIDATED, G.ALWAYS, S.BROKEN),
    Transition(S.EVICTING, T.REFUSED, G.ALWAYS, S.DROPPED),
    Transition(S.EVICTING, T.CONCLUDED, G.ALWAYS, S.ENDED),
    Transition(S.WAITING, T.INVALIDATED, G.ALWAYS, S.BROKEN),
    Transition(S.WAITING, T.REFUSED, G.ALWAYS, S.DROPPED),
    Transition(S.WAITING, T.CONCLUDED, G.ALWAYS, S.ENDED),
    Transition(S.BROKEN, T.REFUSED, G.ALWAYS, S.DROPPED),
    Transition(S.BROKEN, T.CONCLUDED, G.ALWAYS, S.ENDED),
    Transition(S.DROPPED, T.REFUSED, G.ALWAYS, S.DROPPED),
    Transition(S.DROPPED, T.CONCLUDED, G.ALWAYS, S.ENDED),
    Transition(S.ENDED, T.REFUSED, G.ALWAYS, S.ENDED),
)
"""A refusal may arrive late, because units that have been started are completed after their preemption has ended."""
RESERVING = frozenset({S.PREPARING, S.EVICTING, S.WAITING})
"""The states in which room is reserved for the preemptor."""
_TARGETS = {(row.state, row.trigger, row.guard): row.target for row in TRANSITIONS}


class TransitionError(RuntimeError):
    """A transition that is not in the table."""


def next_state(state: PreemptionState, trigger: Trigger, guard: Guard = Guard.ALWAYS) -> PreemptionState:
    """Return the state that follows by the table."""
    target = _TARGETS.get((state, trigger, guard))
    if target is None:
        raise TransitionError(f"{state} --{trigger} [{guard}]--> is not in the table")
    return target


class ActivePreemption(Struct, kw_only=True, eq=False):
    """A preemption for a unit; ``plan`` is None if it was found after a restart."""

    unit: UnitKey
    preemptor: Preemptor
    priority: int
    pods: set[str]
    """The pods of the preemptor that were pending when the plan was made."""
    nominations: dict[str, str]
    expected: dict[str, tuple[Pod, str]] = field(default_factory=dict)
    """The pods that do not exist yet, by UID, each with the node that has room for it."""
    victims: frozenset[str]
    """The pods that it evicts, by UID."""
    awaited: set[str]
    """The pods that still take room and have to end: its victims, and pods that terminate for other reasons."""
    state: PreemptionState = PreemptionState.NEW
    job_id: int = 0
    plan: PreemptionPlan | None = None
    overdrawn: Mapping[str, int] = {}
    """The budgets that did not allow its evictions when the plan was made, with how many were too many."""
    placeable: int = 0
    """How many pods could be placed without the victims when the plan was made; 0 where that was not computed.

    A plan may nominate more, where a domain becomes free as a whole.
    """
    freed_nodes: list[str] = field(default_factory=list)
    """The nodes that its pods were nominated to and did not take."""
    started: set[str] = field(default_factory=set)
    """The victims in units that have been started; these units are completed. It is a part of ``victims``."""
    awaited_at_first: int = 0
    """How many pods it waited for when it began."""

    def advance(self, trigger: Trigger, guard: Guard = Guard.ALWAYS) -> None:
        """Go to the next state."""
        self.state = next_state(self.state, trigger, guard)

    @property
    def is_reserving(self) -> bool:
        """Return whether it holds room for the preemptor."""
        return self.state in RESERVING

    @property
    def has_unstarted(self) -> bool:
        """Return whether some victims are in units that have not been started; asked for each unit."""
        return len(self.started) < len(self.victims)

    @property
    def unstarted(self) -> frozenset[str]:
        """Return the victims in units that have not been started."""
        return self.victims - self.started
