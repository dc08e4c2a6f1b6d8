"""Devices of dynamic resource allocation, as DynamicResources has them.

A node passes if every claim of a pod that has devices already can be used there, and if there are devices for all
others at once. Where only the devices of the node itself matter, the number of pods that it has devices for is kept
like the room for any other resource, and this filter concerns no pod.
"""

from collections.abc import Collection, Iterator

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.device_needs import PodDevices
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.weights import Weights

MAX_SCORE = 100
REASON = "cannot allocate all claims"
NOT_HERE = "resourceclaim not available on the node"
TOO_MANY = "resourceclaim has too many consumers"


def checks(pod_class: PodClass, ledger: Ledger, rows: Rows) -> Iterator[tuple[str, Flags]]:
    """Yield what is wrong with the claims of a class, on all nodes; it stays so until the catalog changes."""
    if pod_class.devices is not None and (problem := ledger.device_allocator.problem(pod_class.devices)):
        yield problem, np.zeros(len(rows), dtype=np.bool_)


class DynamicResources:
    """The filter."""

    def __init__(self, ledger: Ledger, weights: Weights) -> None:
        """Use the devices of a ledger."""
        self._ledger = ledger
        self._weights = weights

    def pre_filter(self, pod_class: PodClass) -> "DynamicResourcesState | None":
        """Return the state of a class to which more matters than what each node has left, else None."""
        devices, allocator = pod_class.devices, self._ledger.device_allocator
        if devices is None or allocator.is_columnar(devices) or allocator.problem(devices):
            return None
        return DynamicResourcesState(self._ledger, devices, self._weights.devices)


def columnar_state(pod_class: PodClass, ledger: Ledger) -> "DynamicResourcesState | None":
    """Return the state of a class that the filter leaves to the room of nodes; plans of evictions read it."""
    devices = pod_class.devices
    if devices is None or not ledger.device_allocator.is_columnar(devices):
        return None
    return DynamicResourcesState(ledger, devices)


class DynamicResourcesState:
    """The claims of one class."""

    def __init__(self, ledger: Ledger, devices: PodDevices, weight: int = 0) -> None:
        """Use these claims."""
        self._weight = weight
        self._allocator = ledger.device_allocator
        self._devices = devices
        self.terms = 1 + len(devices.needs)

    def passes(self, rows: Rows) -> Flags:
        """Return which nodes have, or can use, devices for all claims."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for _, passed in self.checks(rows):
            answer &= passed
        return answer

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield the reasons in their order."""
        if not self._allocator.has_room_for_consumers(self._devices):
            yield TOO_MANY, np.zeros(len(rows), dtype=np.bool_)
        reach = self._allocator.reachable(self._devices)
        if reach is not None:
            yield NOT_HERE, reach[rows]
        room = self._allocator.room(self._devices)
        if room is not None:
            yield REASON, room.fits(rows)

    def could_ever_pass(self, rows: Rows, _companions: Collection[PodClass] = (), /) -> Flags:
        """Return which nodes could have devices for all claims if none was taken."""
        answer = np.ones(len(rows), dtype=np.bool_)
        reach = self._allocator.reachable(self._devices)
        if reach is not None:
            answer &= reach[rows]
        room = self._allocator.room(self._devices)
        if room is not None:
            answer &= room.most_if_free(rows) > 0
        return answer

    def still_passes(self, rows: Rows) -> Flags:
        """Return on which nodes all pods that are placed there can have devices, if need be others than they have."""
        return np.array([self._allocator.could_stay(row) for row in rows.tolist()], dtype=np.bool_)

    def score(self, rows: Rows) -> Scores | None:
        """Prefer nodes where requests are given early alternatives; without alternatives, there is no score."""
        room = self._allocator.room(self._devices)
        if room is None or not room.has_alternatives():
            return None
        ranks = room.ranks(rows)
        found: Scores = self._weight * (MAX_SCORE * ranks // max(int(ranks.max(initial=0)), 1))
        return found
