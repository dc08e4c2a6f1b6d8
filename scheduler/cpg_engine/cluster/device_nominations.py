"""The devices that nominated pods wait for: the first that become free at their nodes are theirs."""

from collections import Counter
from collections.abc import Sequence

from cpg_engine.cluster.device_needs import PodDevices
from cpg_engine.cluster.pod_classes import PodClass


class NominatedDevices:
    """A tally of nominated pods by node and what they need."""

    def __init__(self) -> None:
        """Start without nominated pods."""
        self._waiting: dict[int, Counter[PodDevices]] = {}

    def at(self, row: int) -> Sequence[PodDevices]:
        """Return what each nominated pod at a row needs."""
        return tuple(self._waiting[row].elements()) if row in self._waiting else ()

    def add(self, pod_class: PodClass, row: int, number: int) -> None:
        """Count so many more nominated pods of a class at a node."""
        devices = pod_class.devices
        if devices is not None and (devices.needs or devices.extended) and devices.are_private:
            waiting = self._waiting.setdefault(row, Counter())
            waiting[devices] += number
            if not waiting.total():
                del self._waiting[row]

    def forget(self, row: int) -> None:
        """Count no nominated pod at a node that is gone."""
        self._waiting.pop(row, None)
