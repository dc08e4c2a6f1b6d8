"""The limits of one search: retries, and effort in domains that did not hold a group.

Effort is counted in units that depend on no machine and no clock: one per pod placed, more per scan of the nodes.
"""

NODE_SCAN_COST = 8
"""Effort of scanning the nodes for a class of pods; placing one more pod of that class costs one."""

DEVICE_STEPS_PER_EFFORT = 8
"""Steps of a search for devices that take as long as placing a pod."""

MAX_WASTED_EFFORT_PER_RETRY = 500
"""Effort that may be wasted for each retry that is allowed and once more; a hundred retries make about a second."""

MAX_EFFORT_PER_POD = 50
"""Effort that may be used for each pod of the unit, beside twice what may be wasted: about a millisecond."""


class SearchBudget:
    """What a search has used, and may still use."""

    def __init__(self, retries: int, pods: int) -> None:
        """Allow so many retries for a unit of so many pods."""
        self._allowed = retries
        self._max_effort = 2 * MAX_WASTED_EFFORT_PER_RETRY * (retries + 1) + MAX_EFFORT_PER_POD * pods
        self._retries = retries
        self.effort = 0
        """Effort used so far."""
        self.wasted = 0
        """Effort used in domains that did not hold a group."""
        self.is_exhausted = False
        """Whether the search has asked for more than it was allowed."""

    @property
    def effort_left(self) -> int:
        """Return the effort that the search may still use, however little of it is wasted."""
        return self._max_effort - self.effort

    def renew(self) -> None:
        """Allow everything again; the effort used so far still counts."""
        self._retries = self._allowed
        self.wasted = 0
        self.is_exhausted = False

    def is_wasted(self) -> bool:
        """Return whether too much effort was wasted to try another domain; if so, the budget is exhausted."""
        is_wasted = self.wasted > MAX_WASTED_EFFORT_PER_RETRY * (self._allowed + 1) or self.effort_left < 0
        self.is_exhausted |= is_wasted
        return is_wasted

    def take_retry(self) -> bool:
        """Take one retry; return whether there was one, and note that the budget is exhausted if not."""
        if self._retries <= 0:
            self.is_exhausted = True
            return False
        self._retries -= 1
        return True
