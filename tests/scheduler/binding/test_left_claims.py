"""What attempts that have ended left to pods without a node: it is taken back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.devices import DELETE_PROTECTION, AllocationResult, DeviceAllocationResult, DeviceResult
from cpg_api.core.pod import Pod, PodResourceClaim
from cpg_client.errors import ApiError
from cpg_engine.decisions import DeviceAllocation
from cpg_engine.testing.builders import pod
from cpg_scheduler.binding import left_claims
from cpg_scheduler.binding.left_claims import LeftClaims
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.testing.binder_fixture import BinderFixture, run_others, until

REFUSAL = ApiError(403, "Forbidden", "by a webhook")
GROUP_ENTRY = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}
RESULT = AllocationResult(
    devices=DeviceAllocationResult(results=(DeviceResult("r", "d.example.com", "n1", "gpu-0"),)),
)


def using(name: str, claim: str, **fields: Any) -> Pod:
    """Return a pod that uses a claim."""
    found = pod(name, cpu=1)
    uses = (PodResourceClaim(name="gpu", resource_claim_name=claim),)
    return replace(found, spec=replace(found.spec, resource_claims=uses, **fields))


def consumers(names: str) -> list[dict[str, str]]:
    """Return the entries of pods in the consumers of a claim; that of a native group is G."""
    pods = {name: {"resource": "pods", "name": name, "uid": f"uid-default-{name}"} for name in names}
    return [GROUP_ENTRY if name == "G" else entry for name, entry in pods.items()]


class LeftFixture(BinderFixture):
    """A claim that has a device."""

    def __init__(self, tasks: asyncio.TaskGroup, *, users: str, reserved: str) -> None:
        """Let some pods use it, and have it reserved for some."""
        super().__init__(tasks)
        self.stage.put(*(using(name, "x") for name in users))
        device = {"request": "r", "driver": "d.example.com", "pool": "n1", "device": "gpu-0"}
        self.api.put("x", status={"allocation": {"devices": {"results": [device]}}, "reservedFor": consumers(reserved)})
        self.left = LeftClaims(self.claims, self.extended, self.stage.cache, self.stage.guard)

    async def sweep(self) -> None:
        """Search twice."""
        await self.left.release_left()
        await self.left.release_left()

    @property
    def state(self) -> tuple[bool, str]:
        """Return whether the claim has devices, and its consumers."""
        status = self.api.claim("x").status
        return status.allocation is not None, "".join(one.name for one in status.reserved_for or ())


@asynccontextmanager
async def leaving(users: str = "a", reserved: str = "a") -> AsyncIterator[LeftFixture]:
    """Run a binder, and wait until all its batches have ended."""
    async with asyncio.TaskGroup() as tasks:
        bench = LeftFixture(tasks, users=users, reserved=reserved)
        yield bench
        await until(lambda: not bench.binder.active)


@pytest.mark.parametrize(
    ("users", "reserved", "bound", "state"),
    [
        ("a", "a", "", (False, "")),
        ("a", "", "", (False, "")),
        ("ab", "b", "", (False, "")),
        ("ab", "ab", "b", (True, "b")),
        ("ab", "b", "b", (True, "b")),
        ("a", "az", "", (True, "z")),
        ("a", "G", "", (False, "")),
        ("ab", "G", "b", (True, "g")),
        ("", "", "", (True, "")),
    ],
)
async def test_a_claim_of_pods_that_wait_is_released(
    users: str, reserved: str, bound: str, state: tuple[bool, str]
) -> None:
    """Pods that have a node keep it, and so do consumers that are not known."""
    async with leaving(users, reserved) as bench:
        bench.stage.put(*(using(name, "x", node_name="n1") for name in bound))
        await bench.sweep()
        assert bench.state == state
        writes = len(bench.api.changes())
        await bench.sweep()
        assert len(bench.api.changes()) == writes


async def test_a_claim_is_left_to_the_attempt_that_comes_first() -> None:
    """A new leader completes what the one before had begun, and evictions may be under way for the pod."""
    async with leaving() as bench:
        await bench.left.release_left()
        assert bench.state == (True, "a")
        unit = bench.stage.cache.unit_of(bench.stage.pod("a"))
        bench.stage.cache.reservations.put(bench.stage.pod("a"), Reservation("n1", unit, 0))
        await bench.sweep()
        bench.stage.cache.reservations.remove("uid-default-a")
        bench.stage.put(using("a", "x", scheduler_name="another"))
        await bench.sweep()
        assert bench.state == (True, "a")


async def test_a_release_that_was_refused_is_repeated() -> None:
    """By the next search."""
    async with leaving() as bench:
        bench.api.error = lambda _: REFUSAL
        await bench.sweep()
        bench.api.error = lambda _: None
        await bench.left.release_left()
        assert bench.state == (False, "")


async def test_a_claim_of_a_pod_that_is_being_bound_is_not_released() -> None:
    """Whether its batch began before the search, or before the request that was about to be repeated."""
    chosen = DeviceAllocation("default/x", "uid-x", RESULT, is_new=False)
    outage = ApiError(503, "ServiceUnavailable", "away")
    async with leaving() as bench:
        await bench.left.release_left()
        bench.api.error = lambda _: outage
        releasing = asyncio.ensure_future(bench.left.release_left())
        await run_others()
        bench.start("a", chosen)
        await bench.sweep()
        bench.api.error = lambda _: None
        await releasing
    assert (bench.state, bench.outcomes) == ((True, "a"), ["bound a"])


async def test_a_bind_waits_for_a_release_that_is_under_way() -> None:
    """The claim looks ready as long as its answer is on the way."""
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/x/status"
    async with leaving() as bench:
        await bench.left.release_left()
        bench.api.slow[path] = asyncio.Event()
        releasing = asyncio.ensure_future(bench.left.release_left())
        await run_others()
        bench.start("a", DeviceAllocation("default/x", "uid-x", RESULT, is_new=False))
        await run_others()
        assert bench.sent("a") == 0
        bench.api.slow[path].set()
        await releasing
    assert (bench.state, bench.outcomes, bench.sent("a")) == ((False, ""), ["failed a"], 0)


async def test_what_is_left_is_searched_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims for extended resources are deleted at once: no attempt uses them again."""
    monkeypatch.setattr(left_claims, "SECONDS_BETWEEN_SWEEPS", 0)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "b", "uid": "uid-default-b", "controller": True}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    async with leaving() as bench:
        bench.api.put(
            "made",
            metadata={"annotations": annotations, "ownerReferences": [owner], "finalizers": [DELETE_PROTECTION]},
        )
        sweeping = asyncio.ensure_future(bench.left.run())
        await until(lambda: not bench.state[0])
        sweeping.cancel()
        assert "default/made" not in bench.stage.cache.devices.claims
