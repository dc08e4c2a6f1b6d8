"""The state of one walk over the children of a group, with an explicit stack for backtracking."""

from collections.abc import Iterator, Sequence


class ChildWalk:
    """Which children were placed, which were left out, and which is next."""

    def __init__(self, children: Sequence[int], minimum: int) -> None:
        """Start with no child placed, in the order in which the children are tried."""
        self.children = children
        self.minimum = minimum
        self._placed = 0
        self._stack: list[Iterator[bool] | None] = []
        """For each child that was tried, the ways that it has left; None for a child that was left out."""

    @property
    def is_done(self) -> bool:
        """Return whether enough children have been placed."""
        return self._placed >= self.minimum

    @property
    def is_open(self) -> bool:
        """Return whether enough children can still be placed, if all that are left can."""
        return self._placed + len(self.children) - len(self._stack) >= self.minimum

    @property
    def is_empty(self) -> bool:
        """Return whether no child has been placed."""
        return not self._placed

    @property
    def next_child(self) -> int:
        """Return the child that is tried next."""
        return self.children[len(self._stack)]

    @property
    def untried(self) -> Sequence[int]:
        """Return the children that have not been tried."""
        return self.children[len(self._stack) :]

    def take(self, ways: Iterator[bool]) -> None:
        """Place the next child in its first way, or leave it out where it has none."""
        is_placed = next(ways, False)
        self._stack.append(ways if is_placed else None)
        self._placed += is_placed

    def rewind(self) -> bool:
        """Go back past the children that were left out; return whether there is a placed child before them."""
        while self._stack and self._stack[-1] is None:
            self._stack.pop()
        return bool(self._stack)

    def retry(self) -> None:
        """Place the last child another way, or leave it out where it has none."""
        ways = self._stack.pop()
        assert ways is not None  # noqa: S101 - rewind has ended at a placed child
        self._placed -= 1
        self.take(ways)
