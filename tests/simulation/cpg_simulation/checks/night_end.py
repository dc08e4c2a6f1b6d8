"""The end of a night: everything has been quiet for a while, so everything has to be in order."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

from cpg_simulation.checks.cluster import ObservedCluster
from cpg_simulation.checks.group_states import GroupState, group_states
from cpg_simulation.checks.leases import Leases
from cpg_simulation.checks.second_opinion import SecondOpinion, ask

QUIET_SECONDS = 60.0
"""How long nothing has failed and no user has acted before the end: more than every backoff."""


@dataclass(frozen=True)
class NightEnd:
    """The state at the end; ``living`` are the processes that run."""

    cluster: ObservedCluster
    leases: Leases
    living: AbstractSet[str]
    now: float
    refused: AbstractSet[str] = frozenset()
    """The pods, by UID, that may be no victims because the API server has refused to mark or delete them."""

    @cached_property
    def states(self) -> Sequence[GroupState]:
        """What the status of each group should say."""
        return list(group_states(self.cluster))

    @cached_property
    def opinion(self) -> SecondOpinion:
        """What a scheduler would do that starts now."""
        return ask(self.cluster, self.now, self.refused)
