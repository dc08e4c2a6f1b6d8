"""What does not work about each tree, how often in a row, and what the API server says to it.

Each part of each object stands for itself: that the status of a group can be written says nothing of its spec, which a
policy may refuse for ever, and of a Workload's groups some may be refused while others are made.
"""

from collections.abc import Collection, Mapping
from typing import Generic, NamedTuple, TypeAlias, TypeVar

K = TypeVar("K")
ObjectPart: TypeAlias = tuple[str, str]

FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0

LOOK: ObjectPart = ("", "look")
"""The place of a mistake of ours while a tree was looked at."""


class PartFailure(NamedTuple):
    """How often in a row something has failed, and why the last time."""

    times: int
    words: str


class RetryState(Generic[K]):
    """What fails, by tree and place, for as long as it is wanted."""

    def __init__(self) -> None:
        """Start without any."""
        self._of: dict[K, dict[ObjectPart, PartFailure]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def of(self, tree: K) -> Mapping[ObjectPart, PartFailure]:
        """Return what fails about a tree."""
        return self._of.get(tree, {})

    def note(self, tree: K, place: ObjectPart, words: str = "") -> float:
        """Remember that something has failed; return after how many seconds to try again, which double."""
        found = self._of.setdefault(tree, {})
        times = found[place].times if place in found else 0
        found[place] = PartFailure(times + 1, words)
        return min(FIRST_RETRY * 2.0 ** min(times, 20), LONGEST_RETRY)

    def worked(self, tree: K, place: ObjectPart) -> None:
        """Forget what works again."""
        self._keep(tree, {other: trouble for other, trouble in self.of(tree).items() if other != place})

    def only(self, tree: K, places: Collection[ObjectPart]) -> None:
        """Forget what is no longer wanted."""
        self._keep(tree, {place: trouble for place, trouble in self.of(tree).items() if place in places})

    def _keep(self, tree: K, left: dict[ObjectPart, PartFailure]) -> None:
        if left:
            self._of[tree] = left
        else:
            self._of.pop(tree, None)
