"""Searches for the devices of pods that ask for the same, kept by what they depend on.

That is the views of a node's pools, and what is taken of them; nodes that agree in both share one search.
"""

from typing import NamedTuple

from msgspec import Struct

from cpg_engine.devices.copies import repeat_shape, repeat_views, split_picks
from cpg_engine.devices.search import DeviceSearch, after
from cpg_engine.devices.shapes import DeviceShape
from cpg_engine.devices.values import Pick, PoolState, PoolView

MAX_STEPS = 10_000
"""Steps of one search for devices: about twenty milliseconds."""
MAX_STEPS_IN_SUM = 200_000
"""Steps of all searches for one shape until devices or classes change, ..."""
MIN_STEPS = 100
"""... after which a search may take no more than so many: a claim may be made to be hard on every node."""
MAX_SOLUTIONS = 100_000
"""Solutions that are kept for one shape."""
MAX_SEARCHES = 1_000
"""Searches that are kept prepared for one shape."""
MAX_TOGETHER = 16
"""Pods of a node whose devices are searched together."""
UNLIMITED = 2**20
"""For more pods no node has room."""

Views = tuple[PoolView, ...]
States = tuple[PoolState, ...]
Picks = tuple[Pick, ...]


class Solution(Struct, frozen=True):
    """The devices for one pod, and the states once it has them; None where there are none."""

    picks: Picks | None
    states: States = ()
    steps: int = 0
    is_cut: bool = False


class PodCount(NamedTuple):
    """For how many pods there are devices: as many as searches have found, and at most."""

    found: int
    most: int


class DeviceSolver:
    """The searches for one shape. Views are numbered in the order in which they appear."""

    def __init__(self, shape: DeviceShape) -> None:
        """Know no views yet."""
        self.shape = shape
        self.views: list[Views] = []
        self._number_of: dict[Views, int] = {}
        self._searches: dict[tuple[int, int], DeviceSearch] = {}
        self._solutions: dict[tuple[int, States], Solution] = {}
        self._together: dict[tuple[int, States, int], tuple[tuple[Picks, ...] | None, bool]] = {}
        self._counts: dict[tuple[int, States], PodCount] = {}
        self._steps = 0
        self._is_plain = len(shape.alternatives) == 1 and not shape.claims[0].constraints and not _takes_all(shape)

    def number(self, views: Views) -> int:
        """Return the number of the views of a node."""
        found = self._number_of.setdefault(views, len(self.views))
        if found == len(self.views):
            self.views.append(views)
        return found

    def solve(self, number: int, states: States) -> Solution:
        """Return the devices for one more pod."""
        key = (number, states)
        found = self._solutions.get(key)
        if found is None:
            if len(self._solutions) >= MAX_SOLUTIONS:
                self._solutions.clear()
            found = self._solutions[key] = self._find(number, states)
        return found

    def solve_together(self, number: int, states: States, pods: int) -> tuple[Picks, ...] | None:
        """Return the devices for each of so many more pods, or None."""
        return self._find_together(number, states, pods)[0]

    def count(self, number: int, states: States) -> PodCount:
        """Return for how many more pods there are devices."""
        key = (number, states)
        found = self._counts.get(key)
        if found is None:
            if len(self._counts) >= MAX_SOLUTIONS:
                self._counts.clear()
            found = self._counts[key] = self._count(number, states)
        return found

    def _find(self, number: int, states: States) -> Solution:
        views = self.views[number]
        result = self._search(number, 1).find(states, self._allowance())
        self._steps += result.steps
        new = () if result.picks is None else after(self.shape, views, states, result.picks)
        return Solution(result.picks, new, steps=result.steps, is_cut=result.is_cut)

    def _find_together(self, number: int, states: States, pods: int) -> tuple[tuple[Picks, ...] | None, bool]:
        """Return the devices for each pod, and whether the search was cut."""
        key = (number, states, pods)
        found = self._together.get(key)
        if found is None:
            if len(self._together) >= MAX_SOLUTIONS:
                self._together.clear()
            result = self._search(number, pods).find(states, self._allowance())
            self._steps += result.steps
            picks = None if result.picks is None else split_picks(result.picks, self.shape, pods)
            found = self._together[key] = (picks, result.is_cut)
        return found

    def _search(self, number: int, pods: int) -> DeviceSearch:
        found = self._searches.get((number, pods))
        if found is None:
            if len(self._searches) >= MAX_SEARCHES:
                self._searches.clear()
            views = repeat_views(self.views[number], self.shape, pods)
            found = self._searches[number, pods] = DeviceSearch(repeat_shape(self.shape, pods), views)
        return found

    def _allowance(self) -> int:
        return MAX_STEPS if self._steps < MAX_STEPS_IN_SUM else MIN_STEPS

    def _count(self, number: int, states: States) -> PodCount:
        pods, now, is_cut = 0, states, False
        while (found := self.solve(number, now)).picks is not None:
            pods += 1
            if found.states == now:
                return PodCount(UNLIMITED, UNLIMITED)
            now = found.states
        is_cut = found.is_cut
        views = self.views[number]
        if self._are_alike(views) or (not pods and not is_cut):
            return PodCount(pods, pods)
        most = self._most_by_number(views, states)
        while pods < min(most, MAX_TOGETHER):
            picks, is_cut = self._find_together(number, states, pods + 1)
            if picks is None:
                break
            pods += 1
        is_exact = pods >= most or (pods < MAX_TOGETHER and not is_cut)
        return PodCount(pods, pods if is_exact else most)

    def _are_alike(self, views: Views) -> bool:
        """Return whether it does not matter to the pods of a node which devices each of them is given."""
        return self._is_plain and not any(one.counters or one.is_shareable for view in views for one in view.devices)

    def _most_by_number(self, views: Views, states: States) -> int:
        """Return for how many pods there are enough devices, if any device served any request."""
        shareable = any(device.is_shareable for view in views for device in view.devices)
        if shareable or _takes_all(self.shape):
            return UNLIMITED
        requests = (request for claim in self.shape.claims for request in claim.requests)
        each = sum(min(self.shape.alternatives[index].count for index in request) for request in requests)
        free = sum(
            not state.taken >> device.position & 1
            for view, state in zip(views, states, strict=True)
            for device in view.devices
        )
        return free // max(each, 1)


def _takes_all(shape: DeviceShape) -> bool:
    """Return whether an alternative takes what cannot be counted: all devices, or none for itself."""
    return any(found.is_admin or not found.count for found in shape.alternatives)
