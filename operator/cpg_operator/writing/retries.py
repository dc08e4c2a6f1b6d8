"""What fails about each tree, how often in a row, and what the API server says about it.

Each part of each object counts separately. That the status of a group can be written says nothing about its spec, which
a policy may refuse for ever, and of a Workload's groups some may be refused while others are created.
"""

from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple, TypeVar

from cpg_operator.writes import ObjectPart

K = TypeVar("K")

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 1.0, 60.0

RECONCILE_PART: ObjectPart = ("", "reconcile")
"""Stands for an exception in our own code while a tree was reconciled."""


class PartFailure(NamedTuple):
    """How often in a row a part has failed, and the API server's last message."""

    times: int
    message: str


class RetryState(Generic[K]):
    """The failures of each tree, for as long as the tree still wants what fails."""

    def __init__(self) -> None:
        """Start without any."""
        self._failures: dict[K, dict[ObjectPart, PartFailure]] = {}

    def __len__(self) -> int:
        return len(self._failures)

    def failures(self, tree: K) -> Mapping[ObjectPart, PartFailure]:
        """Return what fails about a tree."""
        return self._failures.get(tree, {})

    def record(self, tree: K, part: ObjectPart, message: str = "") -> float:
        """Record a failure; return after how many seconds to retry, which doubles each time."""
        found = self._failures.setdefault(tree, {})
        times = found[part].times if part in found else 0
        found[part] = PartFailure(times + 1, message)
        return min(FIRST_RETRY_SECONDS * 2.0 ** min(times, 20), MAX_RETRY_SECONDS)

    def clear(self, tree: K, part: ObjectPart) -> None:
        """Forget the failures of a part that works again."""
        self._replace(tree, {other: failure for other, failure in self.failures(tree).items() if other != part})

    def keep_only(self, tree: K, parts: Collection[ObjectPart]) -> None:
        """Forget the failures of all other parts, which are no longer wanted."""
        self._replace(tree, {part: failure for part, failure in self.failures(tree).items() if part in parts})

    def _replace(self, tree: K, left: dict[ObjectPart, PartFailure]) -> None:
        if left:
            self._failures[tree] = left
        else:
            self._failures.pop(tree, None)
