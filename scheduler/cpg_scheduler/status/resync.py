"""The status of whole trees: what the present state of a tree says about its groups, whatever was reported before.

The result of an attempt is reported when its binds have worked. That is not enough: the process may die between the
last bind and the report, a bind without an answer may have worked, and members that were waited for may be deleted. So
the status of a tree without pending pods is resynced whenever something of it changes, when binds have ended that did
not place all of it, and once for every tree after a start. It costs nothing for trees that are placed, because their
condition is final. Groups that were evicted as a whole are resynced until they have their minimum again, also while
their tree has pending pods: no attempt may follow when the last pod takes back that it is evicted.

A tree of another scheduler gets no conditions, except that we take back the eviction of its groups.
"""

from collections.abc import Callable, Collection, Iterable

from cpg_api.core.pod import Pod
from cpg_api.scheduling.attempts import AttemptFinding
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_api.scheduling.names import REASON_PENDING
from cpg_engine.cycle import decide
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.verdicts import Finding
from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache
from cpg_scheduler.cache.conditions import is_being_evicted, is_disrupted
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.victim_condition import is_evicted_by
from cpg_scheduler.queueing.hints import FailedAttempt
from cpg_scheduler.status.attempts import AttemptResult
from cpg_scheduler.status.conditions import condition_of
from cpg_scheduler.status.updates import (
    GroupRecovered,
    GroupStatusUpdate,
    StatusUpdate,
    attempt_updates,
    inadmissible_groups,
)
from cpg_scheduler.units import (
    SchedulableUnit,
    build_unit,
    effective_tree_of,
    groups_of,
    groups_with_minimum,
    members_of,
    queue_key_of,
)


class TreeStatus:
    """Status updates that follow from the present state of trees."""

    def __init__(self, cache: ClusterCache, awaits: Callable[[Pod], bool], options: SearchOptions) -> None:
        """Read trees from the cache; ``awaits`` returns whether a preemption waits for a pod to end."""
        self._cache = cache
        self._awaits = awaits
        self._options = options

    def resync(self, key: UnitKey) -> list[StatusUpdate]:
        """Return the updates for a tree; where it has pending pods, only for groups that have recovered."""
        unit = None if self._is_foreign(key) else self._settled_unit(key)
        if unit is None:
            return self.recovered(key)
        if isinstance(unit, Inadmissible):
            return [*inadmissible_groups(unit), *self.recovered(key)]
        explanation = decide(self._cache.snapshot, unit.unit, self._options).explanation
        placed = self.placed(key) if explanation.finding is Finding.PLACED else []
        return [*attempt_updates(unit, explanation, {}), *placed]

    def shared(self, key: UnitKey, failure: FailedAttempt, number: int) -> list[StatusUpdate]:
        """Return the updates for a unit that shares the failure of an equivalent one."""
        unit = build_unit(self._cache, key)
        explanation = failure.explained_for(unit.unit) if isinstance(unit, SchedulableUnit) else None
        if isinstance(unit, Inadmissible) or explanation is None:
            return []
        unplaced = {uid: self._cache.group_of(pod) for uid, pod in unit.pods.items()}
        return list(attempt_updates(unit, explanation, unplaced, outlook=failure.outlook, number=number))

    def placed(self, key: UnitKey, number: int | None = None) -> list[StatusUpdate]:
        """Return the updates for the groups with a bound minimum, as they are now, after an attempt of that number."""
        groups, result = self.placed_groups(key).values(), AttemptResult(number)
        updates = [GroupStatusUpdate(group, scheduled=True, attempt=result) for group in groups]
        return [*updates, *self.recovered(key)]

    def placed_groups(self, key: UnitKey, unbound: Collection[str] | None = None) -> dict[GroupKey, Group]:
        """Return the groups of which the minimum has nodes: of pods in a PodGroup, of such child groups above.

        An assumed pod does not count while its bind is in flight. With ``unbound``, pending pods by UID, it counts, and
        these pods count as well.
        """
        if key.flavour == SINGLE_POD:
            return {}

        def count(group: GroupKey) -> int:
            members = members_of(self._cache, key.flavour, group)
            if unbound is None:
                return sum(not self._is_uncertain(pod.metadata.uid) for pod in members.scheduled)
            return len(members.scheduled) + sum(pod.metadata.uid in unbound for pod in members.pending)

        return groups_with_minimum(effective_tree_of(self._cache, key), count)

    def is_placed(self, key: UnitKey) -> bool:
        """Return whether the minimum of each group of a tree has nodes."""
        return len(self.placed_groups(key)) == len(groups_of(self._cache, key))

    def recovered(self, key: UnitKey) -> list[StatusUpdate]:
        """Return the updates for the groups that were evicted as a whole and have their minimum again."""
        return [GroupRecovered(group, key) for group in self._recovered_groups(key)]

    def has_recovered(self, key: UnitKey, group: GroupKey) -> bool:
        """Return whether a group of a tree was evicted as a whole and has its minimum again."""
        return group in map(key_of, self._recovered_groups(key))

    def _recovered_groups(self, key: UnitKey) -> list[Group]:
        """Return the groups with the condition that they are evicted, although no pod of the tree is any more.

        In a foreign tree, that is our condition only if the message names us.
        """
        groups = groups_of(self._cache, key)
        found = [group for group in groups if is_disrupted(group)]
        if found and self._is_foreign(key):
            found = [group for group in found if is_evicted_by(self._cache.scheduler_name, group)]
        if not found or any(is_being_evicted(pod) or self._awaits(pod) for pod in self._members(key, groups)):
            return []
        placed = self.placed_groups(key)
        return [group for group in found if key_of(group) in placed]

    def _settled_unit(self, key: UnitKey) -> SchedulableUnit | Inadmissible | None:
        """Return the unit of a tree with groups that may have an outdated condition, or None.

        Trees with pending pods are reported by their attempts, those with binds in flight are resynced when these have
        ended, and an empty tree has its first condition.
        """
        if key.flavour == SINGLE_POD or queue_key_of(self._cache, key) is not None:
            return None
        groups = groups_of(self._cache, key)
        members = list(self._members(key, groups))
        if not any(map(_is_open, groups)) or any(self._is_uncertain(pod.metadata.uid) for pod in members):
            return None
        if not (members or any(map(_says_failure, groups))):
            return None
        return build_unit(self._cache, key)

    def _is_foreign(self, key: UnitKey) -> bool:
        """Return whether a tree has living pods, and none of them names our scheduler."""
        members = self._members(key, groups_of(self._cache, key))
        names = (pod.spec.scheduler_name for pod in members if not (pod.is_terminal or pod.is_terminating))
        ours = self._cache.scheduler_name
        return next(names, ours) != ours and ours not in names

    def _members(self, key: UnitKey, groups: Iterable[Group]) -> Iterable[Pod]:
        return (pod for group in groups for pod in self._cache.members(key.flavour, key_of(group)))

    def _is_uncertain(self, uid: str) -> bool:
        return uid in self._cache.assumed and uid in self._cache.binds_in_flight


def _is_open(group: Group) -> bool:
    """Return whether the conditions of a group are not final, or its last attempt is not that which placed it."""
    condition = condition_of(group)
    if condition is None or condition.status != "True" or is_disrupted(group):
        return True
    return condition.finding not in {"", AttemptFinding.PLACED}


def _says_failure(group: Group) -> bool:
    """Return whether the condition of a group says what a scheduler has found."""
    condition = condition_of(group)
    return condition is not None and condition.status == "False" and condition.reason != REASON_PENDING
