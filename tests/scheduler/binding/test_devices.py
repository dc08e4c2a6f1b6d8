"""The PreBind plugin for devices: what it writes for claims, and how a batch ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.core.devices import AllocationResult, DeviceAllocationResult, DeviceResult
from cpg_api.core.pod import PodResourceClaim, SchedulingGroup
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.policies import PodGroupResourceClaim
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_engine.decisions import DeviceAllocation
from cpg_engine.testing.builders import pod, pod_group
from cpg_scheduler.binding import claim_writer
from cpg_scheduler.binding.claim_writes import ClaimRelease
from cpg_scheduler.testing.binder_fixture import BinderFixture, run_others, until
from cpg_scheduler.testing.stage import NATIVE

SILENCE = ConnectionFailedError("server", "PATCH", "no answer")
OUTAGE = ApiError(500, "InternalError", "etcd is away")
CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/x"
EPOCH = "1970-01-01T00:00:00Z"
ATTACHED, BROKEN = "example.com/attached", "example.com/broken"


def result(device: str = "gpu-0", **fields: Any) -> AllocationResult:
    """Return an allocation of one device."""
    found = DeviceResult(request="r", driver="d.example.com", pool="n1", device=device, **fields)
    return AllocationResult(devices=DeviceAllocationResult(results=(found,)))


def chosen(name: str = "x", device: str = "", *, is_new: bool = True, **fields: Any) -> DeviceAllocation:
    """Return what a decision allocates to a claim, by default a device of its own."""
    found = result(device or ("gpu-0" if name == "x" else f"gpu-{name}"), **fields)
    return DeviceAllocation(f"default/{name}", f"uid-{name}", found, is_new)


def user(name: str) -> dict[str, str]:
    """Return the entry of a pod in the consumers of a claim."""
    return {"resource": "pods", "name": name, "uid": f"uid-default-{name}"}


def allocated(*users: str, device: str = "gpu-0", **fields: Any) -> dict[str, Any]:
    """Return the status of an allocated claim."""
    one = {"request": "r", "driver": "d.example.com", "pool": "n1", "device": device, **fields}
    return {"allocation": {"devices": {"results": (one,)}}, "reservedFor": [user(name) for name in users]}


@asynccontextmanager
async def binding(names: str = "a", claims: str = "x") -> AsyncIterator[BinderFixture]:
    """Run a binder with claims that the pods use, and wait until all its batches have ended."""
    async with asyncio.TaskGroup() as tasks:
        bench = BinderFixture(tasks)
        for name in claims:
            bench.api.put(name)
        uses = tuple(PodResourceClaim(name=name, resource_claim_name=name) for name in claims)
        for name in names:
            found = pod(name, cpu=1)
            bench.stage.put(replace(found, spec=replace(found.spec, resource_claims=uses)))
        yield bench
        await until(lambda: not bench.binder.active)


def users_of(bench: BinderFixture, name: str = "x") -> list[str]:
    """Return the names of the consumers of a claim."""
    return [found.name for found in bench.api.claim(name).status.reserved_for or ()]


def is_allocated(bench: BinderFixture, name: str = "x") -> bool:
    """Return whether a claim has devices."""
    return bench.api.claim(name).status.allocation is not None


async def test_a_claim_is_protected_then_allocated_and_reserved_before_the_bind() -> None:
    """By two writes, each of the version that the one before made."""
    async with binding() as bench:
        bench.start("a", chosen())
    first, second, bind = bench.api.writes
    finalizer = "resource.kubernetes.io/delete-protection"
    assert first == ("PATCH", CLAIM, {"metadata": {"uid": "uid-x", "resourceVersion": "11", "finalizers": [finalizer]}})
    status = {"allocation": allocated()["allocation"] | {"allocationTimestamp": EPOCH}, "reservedFor": [user("a")]}
    metadata = {"uid": "uid-x", "resourceVersion": "12"}
    assert second == ("PATCH", f"{CLAIM}/status", {"metadata": metadata, "status": status})
    assert (bind.path.rpartition("/")[2], bench.outcomes, bench.api.reads) == ("binding", ["bound a"], [])


async def test_a_claim_that_pods_of_a_batch_share_is_written_once() -> None:
    """With all of them as consumers; another pod of the batch is none."""
    async with binding("abc") as bench:
        bench.start("abc", each={"a": (chosen(),), "b": (chosen(is_new=False),)})
    assert (len(bench.api.changes()), users_of(bench), bench.outcomes) == (2, ["a", "b"], ["bound abc"])


async def test_no_pod_is_bound_before_all_claims_are_written_and_seen() -> None:
    """The ledger stops to assume the devices with the bind, so the watch has to show them before."""
    async with binding("ab", "xy") as bench:
        bench.api.is_silent = True
        bench.start("ab", each={"a": (chosen("x"),), "b": (chosen("y"),)})
        await run_others()
        assert (len(bench.api.changes()), bench.sent("a")) == (4, 0)
        bench.api.show("x")
        await run_others()
        assert bench.sent("a") == 0
        bench.api.show("y")
    assert bench.outcomes == ["bound ab"]


async def test_an_allocated_claim_is_only_reserved() -> None:
    """A new leader completes what the old one had begun, and a pod that shares a claim follows the first."""
    async with binding() as bench:
        bench.api.put("x", status=allocated("other"))
        bench.start("a", chosen(is_new=False))
    assert [write.body["status"] for write in bench.api.changes()] == [{"reservedFor": [user("a")]}]
    assert (users_of(bench), bench.outcomes) == (["other", "a"], ["bound a"])


@pytest.mark.parametrize("group", [False, True])
async def test_a_claim_that_is_reserved_needs_no_write(group: bool) -> None:  # noqa: FBT001 - a case
    """For the pod, or for its native group."""
    async with binding() as bench:
        entry = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}
        bench.api.put("x", status=allocated() | {"reservedFor": [entry if group else user("a")]})
        found = bench.stage.pod("a")
        named = replace(found.spec, scheduling_group=SchedulingGroup(pod_group_name="g"))
        bench.stage.put(replace(found, spec=named))
        bench.start("a", chosen(is_new=False))
    assert (bench.api.changes(), bench.outcomes) == ([], ["bound a"])


@pytest.mark.parametrize(
    ("there", "allocation", "problem"),
    [
        ({"status": allocated(device="gpu-1")}, chosen(), "was allocated other devices meanwhile"),
        ({"metadata": {"uid": "another"}}, chosen(), "is gone or terminating"),
        ({"metadata": {"deletionTimestamp": EPOCH}}, chosen(), "is gone or terminating"),
        ({}, chosen(is_new=False), "has lost its devices"),
        ({"status": allocated(*map(str, range(256)))}, chosen(), "would have 257 users, more than 256"),
        ({"spec": 3}, chosen(), '"default/x" cannot be read: spec: Expected `object`, got `int`'),
    ],
)
async def test_a_claim_that_contradicts_the_decision_ends_the_batch(
    there: dict[str, Any], allocation: DeviceAllocation, problem: str
) -> None:
    """The watch shows it late, so the first write is a conflict, and the claim is read."""
    async with binding() as bench:
        bench.api.is_silent = True
        bench.api.put("x", **there)
        bench.start("a", allocation)
        await run_others()
        bench.api.is_silent = False
        bench.api.put("x", spec={})
    assert bench.failure.problem is not None
    assert problem in bench.failure.problem.problem  # type: ignore[union-attr] # PreBindFailed
    assert (bench.outcomes, bench.assumed(), bench.sent("a")) == (["failed a"], [], 0)


@pytest.mark.parametrize("error", [SILENCE, OUTAGE, ApiError(409, "Conflict", "changed")])
@pytest.mark.parametrize("at", [CLAIM, f"{CLAIM}/status"])
async def test_a_write_without_an_effect_is_repeated(error: Exception, at: str) -> None:
    """The claim is read first."""
    async with binding() as bench:
        errors = [error, error]
        bench.api.error = lambda sent: errors.pop() if errors and (sent.method, sent.path) == ("PATCH", at) else None
        bench.start("a", chosen())
    assert (bench.outcomes, users_of(bench), bench.waits) == (["bound a"], ["a"], [0.25, 0.5])


async def test_a_write_without_an_answer_is_not_repeated_if_it_has_worked() -> None:
    """It is read back: neither the finalizer nor the allocation is written twice."""
    async with binding() as bench:
        bench.api.lost = [SILENCE, OUTAGE]
        bench.start("a", chosen())
    assert (bench.outcomes, len(bench.api.changes()), len(bench.api.reads)) == (["bound a"], 2, 2)


@pytest.mark.parametrize("status", [403, 404, 422])
async def test_a_refusal_ends_the_batch_and_releases_the_other_claims(status: int) -> None:
    """They are free again before the outcome is reported, and no pod is bound."""
    async with binding("ab", "xy") as bench:
        refusal = ApiError(status, "Refused", "no")
        bench.api.error = lambda sent: refusal if sent.path.endswith("/y/status") else None
        bench.start("ab", each={"a": (chosen("x"),), "b": (chosen("y"),)})
        await until(lambda: bench.outcomes)
        assert (is_allocated(bench, "x"), users_of(bench, "x")) == (False, [])
    assert (bench.outcomes, bench.assumed(), bench.sent("a")) == (["failed ab"], [], 0)


async def test_a_write_that_is_under_way_is_released_too() -> None:
    """When another claim ends the batch, the answer to the write is awaited first: it might come later."""
    async with binding("ab", "xy") as bench:
        answer = bench.api.slow[f"{CLAIM}/status"] = asyncio.Event()
        bench.api.error = lambda sent: ApiError(422, "Invalid", "no") if sent.path.endswith("/y") else None
        bench.start("ab", each={"a": (chosen("x"),), "b": (chosen("y"),)})
        await run_others(50)
        assert bench.outcomes == []
        answer.set()
    assert (bench.outcomes, is_allocated(bench, "x")) == (["failed ab"], False)


async def test_a_shared_claim_stays_with_its_other_users() -> None:
    """Only our unbound pods are removed."""
    async with binding("ab", "xy") as bench:
        bench.api.put("x", status=allocated("other"))
        bench.api.error = lambda sent: ApiError(422, "Invalid", "no") if "/y" in sent.path else None
        bench.start("ab", each={"a": (chosen("x", is_new=False),), "b": (chosen("y"),)})
    assert (users_of(bench, "x"), is_allocated(bench, "x")) == (["other"], True)


async def test_an_earlier_allocation_stays_for_the_next_attempt() -> None:
    """Only the allocations of this decision are taken back with it."""
    async with binding("ab", "xy") as bench:
        bench.api.put("x", status=allocated("a"))
        bench.api.error = lambda sent: ApiError(422, "Invalid", "no") if "/y" in sent.path else None
        bench.start("ab", each={"a": (chosen("x", is_new=False),), "b": (chosen("y"),)})
    assert (users_of(bench, "x"), is_allocated(bench, "x")) == ([], True)


async def test_a_refused_bind_releases_the_claims_of_its_pod() -> None:
    """Those of the pods that are bound stay."""
    async with binding("ab", "xy") as bench:
        bench.fail("b", ApiError(403, "Forbidden", "by a webhook"))
        bench.start("ab", each={"a": (chosen("x"),), "b": (chosen("y"),)})
    assert (users_of(bench, "x"), users_of(bench, "y"), bench.outcomes) == (["a"], [], ["failed ab"])
    assert not is_allocated(bench, "y")


async def test_a_pod_that_goes_ends_the_batch() -> None:
    """The claims of the others are released; kube-controller-manager removes the pod that is gone."""
    async with binding("ab", "xy") as bench:
        bench.api.is_silent = True
        bench.start("ab", each={"a": (chosen("x"),), "b": (chosen("y"),)})
        await run_others()
        bench.api.is_silent = False
        bench.stage.delete(bench.stage.pod("b"))
        bench.api.show("x")
    assert (bench.outcomes, is_allocated(bench, "x")) == (["failed ab"], False)


def conditions(**status: str) -> dict[str, Any]:
    """Return what a driver says of the device."""
    kinds = {"attached": ATTACHED, "broken": BROKEN}
    found = [{"type": kinds[name], "status": value, "message": "cable"} for name, value in status.items()]
    return {"devices": [{"driver": "d.example.com", "pool": "n1", "device": "gpu-0", "conditions": found}]}


async def test_a_device_with_binding_conditions_is_waited_for() -> None:
    """Until all of them are true, also if the claim was allocated before."""
    async with binding() as bench:
        bench.start("a", chosen(binding_conditions=(ATTACHED,), binding_failure_conditions=(BROKEN,)))
        await run_others()
        status = bench.api.objects[CLAIM]["status"]  # type: ignore[index] # plain data
        bench.api.put("x", status=status | conditions(attached="False", broken="False"))
        await run_others()
        assert (bench.outcomes, bench.binder.active) == ([], 1)
        bench.api.put("x", status=status | conditions(attached="True"))
    assert bench.outcomes == ["bound a"]
    counted = {line for line in bench.stage.metrics.page("").body.decode().splitlines() if line.endswith(" 1.0")}
    labels = 'driver="d.example.com",profile="cpg-scheduler",status="success"'
    assert counted > {
        'cpg_scheduler_device_claims_total{result="success"} 1.0',
        'cpg_scheduler_device_prebind_duration_seconds_count{result="success"} 1.0',
        f"scheduler_dra_bindingconditions_allocations_total{{{labels}}} 1.0",
        f"scheduler_dra_bindingconditions_wait_duration_seconds_count{{{labels}}} 1.0",
    }


@pytest.mark.parametrize("is_new", [False, True])
async def test_a_device_that_fails_is_released(is_new: bool) -> None:  # noqa: FBT001 - a case
    """The next attempt may choose another one, whichever attempt had chosen this one."""
    fields: dict[str, Any] = {"bindingConditions": [ATTACHED], "bindingFailureConditions": [BROKEN]}
    async with binding() as bench:
        bench.api.put("x", status=allocated(**fields) | conditions(broken="True"))
        bench.start("a", chosen(is_new=is_new))
    assert not is_allocated(bench)
    assert bench.failure.problem is not None
    problem = f'resourceclaim "default/x": device d.example.com/n1/gpu-0: {BROKEN}: cable'
    assert bench.failure.problem.problem == problem  # type: ignore[union-attr] # PreBindFailed


async def test_a_device_that_does_not_get_ready_is_released() -> None:
    """After the time-out."""
    async with binding() as bench:
        bench.binder._prebinds[1]._timeout = 0.01  # type: ignore[attr-defined] # of the plugin for devices
        bench.start("a", chosen(binding_conditions=(ATTACHED,)))
        await asyncio.sleep(0.02)
    assert not is_allocated(bench)
    assert bench.failure.problem is not None
    assert bench.failure.problem.problem == 'resourceclaim "default/x" not ready within 0.01 s'  # type: ignore[union-attr]


async def test_a_share_has_conditions_of_its_own() -> None:
    """A driver that does not tell shares apart speaks for all of them."""
    async with binding() as bench:
        bench.start("a", chosen(binding_conditions=(ATTACHED,), share_id="s1"))
        await run_others()
        status = bench.api.objects[CLAIM]["status"]  # type: ignore[index] # plain data
        (said,) = conditions(attached="True")["devices"]
        bench.api.put("x", status=status | {"devices": [said | {"shareID": "s2"}]})
        await run_others()
        assert bench.outcomes == []
        bench.api.put("x", status=status | {"devices": [said]})
    assert bench.outcomes == ["bound a"]


async def test_claims_that_cannot_be_released_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch does not wait for them without end: the next decision sees them allocated."""
    monkeypatch.setattr(claim_writer, "MAX_SECONDS_TO_RELEASE", 0.01)
    async with binding("ab", "xy") as bench:
        bench.api.put("x", status=allocated("a"))
        bench.api.error = lambda sent: OUTAGE if "/x" in sent.path else ApiError(422, "Invalid", "no")
        bench.start("ab", each={"a": (chosen("x", is_new=False),), "b": (chosen("y"),)})
        await asyncio.sleep(0.05)
    assert (bench.outcomes, users_of(bench, "x")) == (["failed ab"], ["a"])


async def test_a_claim_can_be_released_on_its_own() -> None:
    """One that is allocated and unused, if its pod fits nowhere else; not one with users or with other devices."""
    async with binding(claims="xyz") as bench:
        bench.api.put("x", status=allocated("a"))
        bench.api.put("y", status=allocated("a", "other", device="gpu-y"))
        bench.api.put("z", status=allocated())
        pods = frozenset({"uid-default-a"})
        releases = [ClaimRelease(chosen(name), pods) for name in "xyw"]
        await bench.claims.release([*releases, ClaimRelease(chosen("z", "gpu-1"))])
    assert [is_allocated(bench, name) for name in "xyz"] == [False, True, True]
    assert users_of(bench, "y") == ["other"]


# A native group that has a claim stands for its pods.

GROUP_ENTRY = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "uid-g"}


def join_native_group(bench: BinderFixture, names: str, claims: str) -> None:
    """Let pods be members of a native group that has these claims."""
    entries = tuple(PodGroupResourceClaim(name=name, resource_claim_name=name) for name in claims)
    group = pod_group("g", meta=ObjectMeta(name="g", namespace="default", uid="uid-g"))
    bench.stage.put(replace(group, spec=replace(group.spec, resource_claims=entries)), flavour=NATIVE)
    for name in names:
        found = bench.stage.pod(name)
        spec = replace(found.spec, scheduling_group=SchedulingGroup(pod_group_name="g"))
        bench.stage.put(replace(found, spec=spec))


async def test_a_claim_of_a_native_group_is_reserved_for_the_group() -> None:
    """Once for all pods; another claim of theirs is reserved for the pods."""
    async with binding("ab", "xy") as bench:
        join_native_group(bench, "ab", "x")
        bench.start("ab", chosen("x"), chosen("y"))
    reserved = [msgspec.to_builtins(bench.api.claim(name).status.reserved_for) for name in "xy"]
    assert reserved == [(GROUP_ENTRY,), (user("a"), user("b"))]
    assert bench.outcomes == ["bound ab"]


@pytest.mark.parametrize("others", [False, True])
async def test_the_reservation_of_a_group_is_released_with_its_last_pod(others: bool) -> None:  # noqa: FBT001 - a case
    """While another member has a node, it stays."""
    async with binding("ab", "xy") as bench:
        join_native_group(bench, "abc" if others else "ab", "x")
        if others:
            bench.stage.cache.assume("uid-default-c", "n1")
        bench.api.error = lambda sent: ApiError(422, "Invalid", "no") if sent.path.endswith("/y") else None
        bench.api.put("x", status=allocated() | {"reservedFor": [GROUP_ENTRY]})
        bench.start("ab", chosen("x"), chosen("y"))
    assert (bench.outcomes, is_allocated(bench, "x")) == (["failed ab"], others)
    assert users_of(bench, "x") == (["g"] if others else [])
