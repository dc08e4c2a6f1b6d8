"""The devices that nominated pods wait for: the first that become free at their nodes are theirs."""

from collections import Counter
from collections.abc import Collection, Iterable

from cpg_engine.cluster.device_needs import ClaimNeed, PodDevices
from cpg_engine.cluster.device_stock import DeviceStock
from cpg_engine.cluster.pod_classes import PodClass


class NominatedDevices:
    """A tally of nominated pods by node and what they need."""

    def __init__(self, stock: DeviceStock) -> None:
        """Start without nominated pods."""
        self._stock = stock
        self._waiting: dict[int, Counter[PodDevices]] = {}

    def at(self, row: int) -> Collection[PodDevices]:
        """Return what each nominated pod at a row needs."""
        return tuple(self._waiting[row].elements()) if row in self._waiting else ()

    def shared_at(self, row: int) -> dict[str, str]:
        """Return the claims without devices that nominated pods at a row may share with others, each with its spec."""
        needs = (need for devices in self._waiting.get(row, ()) for need in devices.needs)
        named = {need.claim: need.spec for need in needs if need.claim is not None}
        return {claim: spec for claim, spec in named.items() if not self._stock.held_by(claim)}

    def shared_with(self, needs: Iterable[ClaimNeed]) -> frozenset[str]:
        """Return the claims among the needs of a pod that nominated pods wait for as well."""
        claims = (need.claim for need in needs if need.claim is not None)
        return frozenset(claim for claim in claims if claim in self._stock.followers)

    def add(self, pod_class: PodClass, row: int, number: int) -> None:
        """Count so many more nominated pods of a class at a node."""
        devices = pod_class.devices
        if devices is not None and (devices.needs or devices.extended):
            waiting = self._waiting.setdefault(row, Counter())
            waiting[devices] += number
            self._follow(devices, row, number)
            if not waiting.total():
                del self._waiting[row]

    def forget(self, row: int) -> None:
        """Count no nominated pod at a node that is gone."""
        for devices, number in self._waiting.pop(row, Counter()).items():
            self._follow(devices, row, -number)

    def _follow(self, devices: PodDevices, row: int, number: int) -> None:
        """Have changes of claims that others may use noted at the row, as many times as there are pods."""
        for need in devices.needs:
            if need.claim is not None:
                self._stock.follow(need.claim, row, number)
