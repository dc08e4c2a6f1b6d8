"""The state of each tree at its last reconcile, for the metrics."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from cpg_api.conditions import find_condition, status_since
from cpg_api.scheduling.health import HealthReason
from cpg_api.scheduling.names import REASON_INVALID
from cpg_api.scheduling.partial_release import PARTIAL, read_partial_release
from cpg_api.validity import initially_scheduled_type
from cpg_operator.context import ReconcileContext
from cpg_operator.writes import TreeKey


class _Partial(NamedTuple):
    """Since when a tree is partial, and after how many seconds it is to be released, if at all."""

    since: float
    release_after: float | None


class TreeStates:
    """The health of the root of each tree, or that the tree is invalid."""

    def __init__(self) -> None:
        """Start without trees."""
        self._states: dict[TreeKey, str] = {}
        self._partial: dict[TreeKey, _Partial] = {}

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield flavour and state of each tree."""
        return ((key.flavour, state) for key, state in self._states.items())

    def trees(self) -> Collection[TreeKey]:
        """Return the keys of all trees."""
        return self._states.keys()

    def record(self, context: ReconcileContext) -> None:
        """Replace the state of a tree."""
        self.forget(context.key)
        if not context.tree.nodes:
            return
        root, health = context.tree.root, context.health[0]
        condition = find_condition(root.status.conditions, initially_scheduled_type(root))
        is_invalid = condition is not None and condition.reason == REASON_INVALID and not context.is_foreign
        self._states[context.key] = REASON_INVALID if is_invalid else health.reason
        if health.reason is HealthReason.PARTIAL:
            since = status_since(root.status.conditions, PARTIAL) or context.now
            release = read_partial_release(root, context.partial_after)
            self._partial[context.key] = _Partial(since, release.after_seconds)

    def forget(self, key: TreeKey) -> None:
        """Drop a tree that has become part of another."""
        self._states.pop(key, None)
        self._partial.pop(key, None)

    def longest_partial(self, now: float) -> float:
        """Return for how long the longest partial tree has held nodes; 0 where none does."""
        return max([0.0, *(now - partial.since for partial in self._partial.values())])

    def release_overdue(self, now: float) -> float:
        """Return by how much the release of a partial tree is overdue; 0 where none is."""
        due = (one.since + one.release_after for one in self._partial.values() if one.release_after is not None)
        return max([0.0, *(now - at for at in due)])
