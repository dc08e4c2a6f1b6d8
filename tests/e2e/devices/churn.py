"""Random changes of one cluster with devices of all kinds: gangs come and go, and the scheduler is killed."""

import itertools
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from cpg_client.resources import PODS
from cpg_lab import devices
from cpg_lab.devices import Plain, device, request, resource_slice

if TYPE_CHECKING:
    from tests.e2e.devices.device_testbed import DeviceTestbed

MAX_GANGS = 8
GPUS_PER_NODE = 4


def kind(name: str, more: str = "") -> Plain:
    """Return a request's selector of the devices of a kind."""
    return {"select": [f'device.attributes["{devices.DRIVER}"].kind == "{name}"{more}']}


TEMPLATES = {
    "one": [request(**kind("gpu"))],
    "pair": [request(count=2, **kind("gpu"))],
    "fabric": [request(**kind("fabric"))],
    "both": [request("gpu", **kind("gpu")), request("fabric", **kind("fabric"))],
    "either": [
        request(first_available=[{"name": "all", "count": 4, **kind("gpu")}, {"name": "one", **kind("fabric")}])
    ],
}
NEWER_TEMPLATES = {
    "share": [request(capacity={"bandwidth": "3Gi"}, **kind("card"))],
    "half": [request(**kind("part", f' && device.attributes["{devices.DRIVER}"].size == "half"'))],
    "part": [request(**kind("part"))],
}
"""Those for shared devices and partitions, which 1.34 does not have."""


def offered(nodes: list[str], *, is_newer: bool) -> list[Plain]:
    """Return GPUs of all nodes and fabric of some of them; cards to share and partitions where the version has them."""
    gpus = [device(f"gpu-{number}", {"kind": "gpu"}) for number in range(GPUS_PER_NODE)]
    ports = [device(f"port-{number}", {"kind": "fabric"}) for number in range(3)]
    found = [resource_slice(f"{node}-gpu", gpus, node=node) for node in nodes]
    found.append(resource_slice("fabric", ports, selector={"topology.cpg.dev/rack": "rack-1"}))
    return found + [one for node in nodes for one in _newer(node)] if is_newer else found


def _newer(node: str) -> list[Plain]:
    """Return a card that several claims share, and a GPU that is whole or in two halves."""
    card = device("card", {"kind": "card"}, {"bandwidth": "10Gi"}, allowMultipleAllocations=True)

    def part(name: str, size: str, memory: str) -> Plain:
        consumed = [{"counterSet": node, "counters": {"memory": {"value": memory}}}]
        return device(name, {"kind": "part", "size": size}, consumesCounters=consumed)

    parts = [part("half-0", "half", "20Gi"), part("half-1", "half", "20Gi"), part("whole", "whole", "40Gi")]
    counters = [{"name": node, "counters": {"memory": {"value": "40Gi"}}}]
    pool = f"{node}-parts"
    return [
        resource_slice(f"{node}-card", [card], node=node, pool=f"{node}-card"),
        resource_slice(pool, parts, node=node, pool=pool, slices=2),
        resource_slice(f"{node}-counters", node=node, pool=pool, slices=2, sharedCounters=counters),
    ]


class Churn:
    """Changes one cluster at random; a seed can be repeated, but not the moments at which the scheduler acts."""

    def __init__(self, bed: "DeviceTestbed", seed: int) -> None:
        """Nothing has happened yet."""
        self.operations: list[str] = []
        self.templates = {**TEMPLATES, **(NEWER_TEMPLATES if bed.is_native else {})}
        self._bed = bed
        self._random = random.Random(seed)  # noqa: S311  # a run can be repeated
        self._numbers = itertools.count()
        self._gangs: dict[str, int] = {}

    async def step(self) -> float:
        """Do one thing; return the seconds until the next."""
        choices: list[tuple[Callable[[], Awaitable[None]], int]] = [
            (self._create, 6 if len(self._gangs) < MAX_GANGS else 0),
            (self._delete_pod, 2 if self._gangs else 0),
            (self._delete, 3 if self._gangs else 0),
            (self._kill, 1),
        ]
        (operation,) = self._random.choices(*zip(*choices, strict=True))
        await operation()
        return self._random.choice((0.0, 0.1, 0.4, 1.0))

    async def finish(self) -> None:
        """Delete all gangs."""
        while self._gangs:
            await self._delete()

    async def _create(self) -> None:
        name, size = f"g{next(self._numbers)}", self._random.randint(1, 4)
        template, is_shared = self._random.choice(list(self.templates)), self._random.random() < 0.25
        self.operations.append(f"create {name} of {size}, {template}{', shared' * is_shared}")
        self._gangs[name] = size
        if is_shared:
            claim = devices.claim(name, *self.templates[template], namespace=self._bed.namespace)
            await self._bed.create(devices.create_request(claim), *self._bed.gang(name, size, claims=[name]))
        else:
            await self._bed.create(*self._bed.gang(name, size, template=template))

    async def _delete(self) -> None:
        name = self._random.choice(list(self._gangs))
        self.operations.append(f"delete {name}")
        for number in range(self._gangs.pop(name)):
            await self._bed.try_to_delete(PODS, f"{name}-{number}")
        await self._bed.try_to_delete(self._bed.pod_groups, name)

    async def _delete_pod(self) -> None:
        name = self._random.choice(list(self._gangs))
        pod = f"{name}-{self._random.randrange(self._gangs[name])}"
        self.operations.append(f"delete {pod}")
        await self._bed.try_to_delete(PODS, pod)

    async def _kill(self) -> None:
        self.operations.append("kill the scheduler")
        self._bed.replicas[-1].process.kill()
        self._bed.start_replica("--no-leader-elect")
