"""Random pods and gangs with claims of all kinds come and go, and the scheduler is killed: no device is given twice.

``CHURN_SECONDS`` is the time for each seed, ``CHURN_SEEDS`` the number of seeds, and ``CHURN_SEED`` the first of them.
"""

import asyncio
import itertools
import os
import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import PODS
from cpg_lab import devices
from cpg_lab.devices import Plain

if TYPE_CHECKING:
    from tests.e2e.devices.device_testbed import DeviceTestbed

SECONDS = float(os.environ.get("CHURN_SECONDS", "25"))
SEEDS = range(
    int(os.environ.get("CHURN_SEED", "1")),
    int(os.environ.get("CHURN_SEED", "1")) + int(os.environ.get("CHURN_SEEDS", "1")),
)
MAX_GANGS = 8
DRAIN_SECONDS = 30.0
DRIVER = devices.DRIVER

pytestmark = pytest.mark.e2e


def select(kind: str) -> list[str]:
    """Return the selector of the devices of a kind."""
    return [f'device.attributes["{DRIVER}"].kind == "{kind}"']


TEMPLATES = {
    "one": [devices.request(select=select("gpu"))],
    "pair": [devices.request(count=2, select=select("gpu"))],
    "fabric": [devices.request(select=select("fabric"))],
    "both": [devices.request("gpu", select=select("gpu")), devices.request("fabric", select=select("fabric"))],
    "either": [
        devices.request(
            first_available=[
                {"name": "four", "count": 4, "select": select("gpu")},
                {"name": "one", "select": select("fabric")},
            ]
        )
    ],
}
NEWER_TEMPLATES = {
    "share": [devices.request(select=select("card"), capacity={"bandwidth": "3Gi"})],
    "half": [devices.request(select=[*select("part"), f'device.attributes["{DRIVER}"].size == "half"'])],
    "part": [devices.request(select=select("part"))],
}
"""Those that need shared devices and partitions."""


class Churn:
    """Changes one cluster at random."""

    def __init__(self, bed: "DeviceTestbed", seed: int) -> None:
        """Nothing has happened yet."""
        self._bed = bed
        self._random = random.Random(seed)  # noqa: S311  # a run can be repeated
        self._names = itertools.count()
        self._gangs: dict[str, int] = {}
        self.operations: list[str] = []

    async def step(self) -> None:
        """Do one thing."""
        weights: dict[Callable[[], object], int] = {
            self._create_gang: 5,
            self._delete_pod: 2,
            self._delete_gang: 2,
            self._restart: 1,
        }
        (operation,) = self._random.choices(list(weights), list(weights.values()))
        if operation == self._create_gang and len(self._gangs) >= MAX_GANGS:
            operation = self._delete_gang
        await operation()

    async def _create_gang(self) -> None:
        name, size = f"g{next(self._names)}", self._random.randint(1, 4)
        template = self._random.choice(self.templates())
        self.operations.append(f"create {name} of {size} with {template}")
        self._gangs[name] = size
        if self._random.random() < 0.3:
            shared = devices.claim(f"{name}-shared", *TEMPLATES["fabric"], namespace=self._bed.namespace)
            await self._bed.create(
                devices.create_request(shared), *self._bed.gang(name, size, claims=[f"{name}-shared"])
            )
        else:
            await self._bed.create(*self._bed.gang(name, size, template=template))

    def templates(self) -> list[str]:
        """Return the templates that the version of Kubernetes has."""
        return [*TEMPLATES, *(NEWER_TEMPLATES if self._bed.is_native else ())]

    async def _delete_gang(self) -> None:
        if self._gangs:
            name = self._random.choice(list(self._gangs))
            self.operations.append(f"delete {name}")
            size = self._gangs.pop(name)
            for number in range(size):
                await self._bed.try_to_delete(PODS, f"{name}-{number}")
            await self._bed.try_to_delete(self._bed.pod_groups, name)

    async def _delete_pod(self) -> None:
        if self._gangs:
            name = self._random.choice(list(self._gangs))
            pod = f"{name}-{self._random.randrange(self._gangs[name])}"
            self.operations.append(f"delete {pod}")
            await self._bed.try_to_delete(PODS, pod)

    async def _restart(self) -> None:
        self.operations.append("kill the scheduler")
        self._bed.replicas[-1].process.kill()
        self._bed.start_replica("--no-leader-elect")

    async def finish(self) -> None:
        """Delete all that is left."""
        while self._gangs:
            await self._delete_gang()


def slices(nodes: list[str], *, is_newer: bool) -> list[Plain]:
    """Return GPUs of nodes and fabric for some of them; shared cards and partitions where the version has them."""
    found = [
        devices.resource_slice(
            f"{node}-gpu", [devices.device(f"gpu-{number}", {"kind": "gpu"}) for number in range(4)], node=node
        )
        for node in nodes
    ]
    found.append(
        devices.resource_slice(
            "fabric",
            [devices.device(f"port-{number}", {"kind": "fabric"}) for number in range(3)],
            selector={"topology.cpg.dev/rack": "rack-1"},
            pool="fabric",
        )
    )
    if is_newer:
        found += [one for node in nodes for one in shared_slices(node)]
    return found


def shared_slices(node: str) -> list[Plain]:
    """Return a card that several claims share, and a GPU that is whole or in two halves."""
    card = devices.device("card", {"kind": "card"}, {"bandwidth": "10Gi"}, allowMultipleAllocations=True)

    def part(name: str, size: str, memory: str) -> Plain:
        consumed = [{"counterSet": node, "counters": {"memory": {"value": memory}}}]
        return devices.device(name, {"kind": "part", "size": size}, consumesCounters=consumed)

    parts = [part("half-0", "half", "20Gi"), part("half-1", "half", "20Gi"), part("whole", "whole", "40Gi")]
    counters = [{"name": node, "counters": {"memory": {"value": "40Gi"}}}]
    return [
        devices.resource_slice(f"{node}-card", [card], node=node, pool=f"{node}-card"),
        devices.resource_slice(f"{node}-parts", parts, node=node, pool=f"{node}-parts", slices=2),
        devices.resource_slice(f"{node}-counters", node=node, pool=f"{node}-parts", slices=2, sharedCounters=counters),
    ]


@pytest.mark.parametrize("seed", SEEDS)
async def test_no_device_is_given_twice(bed: "DeviceTestbed", seed: int) -> None:
    """After every change of a claim. In the end a gang gets all devices, so none is lost."""
    nodes = await bed.offer("2 racks x 2 nodes, cpu=4")
    churn = Churn(bed, seed)
    made = [bed.template(name, *(TEMPLATES | NEWER_TEMPLATES)[name]) for name in churn.templates()]
    await bed.create(*map(devices.create_request, [*slices(nodes, is_newer=bed.is_native), *made]))
    async with bed.claims_watched() as problems:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not problems:
            await churn.step()
            await asyncio.sleep(churn.pause())
            assert await bed.device_problems() == [], churn.operations
        await churn.finish()
        assert problems == [], churn.operations
    await bed.wait_for_devices("", 0, DRAIN_SECONDS)
    await bed.create(*bed.gang("all", 16, template="one"))
    await bed.wait_until_bound(16)
    assert await bed.device_problems() == []
