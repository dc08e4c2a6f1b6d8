"""Claims for extended resources: how they are made before binds, and deleted when pods are not bound."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.devices import (
    DELETE_PROTECTION,
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequest,
    DeviceResult,
    ExactDeviceRequest,
)
from cpg_api.core.pod import ContainerExtendedResourceRequest
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_engine.decisions import ExtendedAllocation
from cpg_engine.testing.builders import pod
from cpg_engine.testing.device_builders import claim_spec, device_class
from cpg_scheduler.binding import extended_claims
from cpg_scheduler.binding.extended_claims import key_for
from cpg_scheduler.testing.binder_fixture import BinderFixture, run_others, until

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SILENCE = ConnectionFailedError("server", "POST", "no answer")
RESOURCE, REQUEST = "example.com/gpu", "container-0-request-0"
REFUSAL = ApiError(403, "Forbidden", "exceeded quota")


def chosen(name: str, device: str = "") -> ExtendedAllocation:
    """Return what a decision allocates to the extended resource of a pod."""
    found = DeviceResult(request=REQUEST, driver="d.example.com", pool="n1", device=device or f"gpu-{name}")
    return ExtendedAllocation(
        f"default/uid-default-{name}",
        claim_spec(DeviceRequest(REQUEST, exactly=ExactDeviceRequest("gpus"))),
        AllocationResult(devices=DeviceAllocationResult(results=(found,))),
        (ContainerExtendedResourceRequest("main", RESOURCE, REQUEST),),
    )


def claim_name(name: str) -> str:
    """Return the name of the claim of a pod."""
    return key_for(pod(name), chosen(name)).removeprefix("default/")


@asynccontextmanager
async def binding(names: str = "a") -> AsyncIterator[BinderFixture]:
    """Run a binder, and bind pods that get a device each."""
    async with asyncio.TaskGroup() as tasks:
        bench = BinderFixture(tasks)
        yield bench
        bench.start(names, each={name: (chosen(name),) for name in names})
        await until(lambda: not bench.binder.active)


def claims(bench: BinderFixture) -> list[str]:
    """Return the names of the claims that there are."""
    return sorted(path.rpartition("/")[2] for path in bench.api.objects if path.startswith(CLAIMS))


def sent(bench: BinderFixture) -> list[str]:
    """Return the writes, by method and the end of the path."""
    place = f"{CLAIMS}/"
    return [f"{one.method} {one.path.replace(place, '').removeprefix('/').split('/')[-1]}" for one in bench.api.writes]


async def test_a_claim_is_made_and_named_in_the_status_before_the_bind() -> None:
    """As kube-scheduler makes it: with the pod as owner, and reserved for it."""
    async with binding() as bench:
        pass
    name = claim_name("a")
    created, finalizer, allocated, status, bind = bench.api.writes
    assert name.startswith("a-extended-resources-")
    assert (created.method, created.path) == ("POST", CLAIMS)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-default-a", "controller": True}
    assert created.body["metadata"] == {
        "name": name,
        "namespace": "default",
        "generateName": "a-extended-resources-",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": (owner,),
    }
    exactly = {"deviceClassName": "gpus"}
    assert created.body["spec"] == {"devices": {"requests": ({"name": REQUEST, "exactly": exactly},)}}
    assert [finalizer.path, allocated.path] == [f"{CLAIMS}/{name}", f"{CLAIMS}/{name}/status"]
    assert allocated.body["status"]["reservedFor"] == [{"resource": "pods", "name": "a", "uid": "uid-default-a"}]
    mapping = {"containerName": "main", "resourceName": RESOURCE, "requestName": REQUEST}
    assert status == (
        "PATCH",
        "/api/v1/namespaces/default/pods/a/status",
        {
            "metadata": {"uid": "uid-default-a"},
            "status": {"extendedResourceClaimStatus": {"requestMappings": (mapping,), "resourceClaimName": name}},
        },
    )
    assert (bind.path.rpartition("/")[2], bench.outcomes) == ("binding", ["bound a"])


async def test_a_long_name_is_cut_as_generated_names_are() -> None:
    """To 58 characters and five more."""
    long = pod("p" * 60)
    name = key_for(long, chosen("p" * 60)).removeprefix("default/")
    assert (len(name), name[:58]) == (63, "p" * 58)
    assert key_for(long, chosen("p" * 60, "gpu-1")) != f"default/{name}"


async def test_no_pod_of_a_batch_is_bound_before_all_claims_are_seen() -> None:
    """The ledger stops to assume the devices with the bind."""
    async with asyncio.TaskGroup() as tasks:
        bench = BinderFixture(tasks)
        bench.api.is_silent = True
        bench.start("ab", each={name: (chosen(name),) for name in "ab"})
        await run_others()
        assert sent(bench) == ["POST resourceclaims"] * 2
        bench.api.is_silent = False
        bench.api.show(claim_name("a"))
        await run_others()
        assert bench.sent("a") == 0
        bench.api.show(claim_name("b"))
        await until(lambda: not bench.binder.active)
    assert bench.outcomes == ["bound ab"]


async def test_a_creation_without_an_answer_makes_no_second_claim() -> None:
    """Its name is taken then, and the claim is read."""
    async with binding() as bench:
        bench.api.lost = [SILENCE]
    assert (claims(bench), bench.outcomes) == ([claim_name("a")], ["bound a"])


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"annotations": {}}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"spec": 3},
    ],
    ids=["of another pod", "being deleted", "unreadable"],
)
async def test_a_claim_of_that_name_that_does_not_suit_ends_the_batch(change: dict[str, Any]) -> None:
    """It is deleted only if it is the pod's."""
    async with asyncio.TaskGroup() as tasks:
        bench = BinderFixture(tasks)
        bench.api.is_silent = "spec" in change
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "uid-default-a", "controller": True}
        meta = {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}, "ownerReferences": [owner]}
        bench.api.put(claim_name("a"), **change | {"metadata": meta | change.get("metadata", {})})
        bench.start("a", chosen("a"))
        await until(lambda: bench.outcomes)
    assert (bench.outcomes, bench.sent("a")) == (["failed a"], 0)


async def test_a_refusal_deletes_the_claims_of_the_batch() -> None:
    """The claim of the other pod was made by then; no pod is bound."""
    async with binding("ab") as bench:
        bench.api.error = lambda one: (
            REFUSAL if one.method == "POST" and one.body["metadata"]["name"][0] == "b" else None
        )
    problem = bench.failure.problem
    assert problem is not None
    assert "exceeded quota" in problem.problem  # type: ignore[union-attr] # PreBindFailed
    assert (claims(bench), bench.outcomes, bench.assumed()) == ([], ["failed ab"], [])


async def test_a_pod_whose_bind_is_refused_loses_its_claim() -> None:
    """Pods that are bound keep theirs."""
    async with binding("ab") as bench:
        bench.api.error = lambda one: REFUSAL if one.path.endswith("/b/binding") else None
    assert (claims(bench), bench.outcomes) == ([claim_name("a")], ["failed ab"])


async def test_a_creation_that_is_under_way_is_waited_for() -> None:
    """A request that is cancelled may still have its effect."""
    async with asyncio.TaskGroup() as tasks:
        bench = BinderFixture(tasks)
        gate = bench.api.slow[CLAIMS] = asyncio.Event()
        bench.start("a", chosen("a"))
        await run_others()
        bench.stage.delete(bench.stage.pod("a"))
        await run_others()
        assert not bench.outcomes
        gate.set()
        await until(lambda: bench.outcomes)
    assert (claims(bench), bench.outcomes) == ([], ["failed a"])


async def test_a_server_that_does_not_keep_the_status_has_no_such_claims() -> None:
    """The pod is not bound, and devices stand for no resources any more."""
    async with binding() as bench:
        bench.api.keeps_status = False
        bench.stage.put(device_class("gpus", extended_resource_name=RESOURCE))
        assert RESOURCE in bench.stage.cache.devices.catalog.backing
    assert (claims(bench), bench.outcomes, bench.sent("a")) == ([], ["failed a"], 0)
    assert bench.stage.cache.devices.catalog.backing == {}


async def test_a_claim_that_cannot_be_deleted_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch ends nevertheless."""
    monkeypatch.setattr(extended_claims, "MAX_SECONDS_TO_DELETE", 0)
    async with binding() as bench:
        outage = ApiError(503, "ServiceUnavailable", "away")
        bench.api.error = lambda one: (
            REFUSAL if one.path.endswith("/binding") else outage if one.method == "DELETE" else None
        )
    assert (claims(bench), bench.outcomes) == ([claim_name("a")], ["failed a"])


async def test_what_is_left_of_earlier_attempts_is_deleted() -> None:
    """Only of pods that wait: not of bound, assumed, foreign and unknown ones."""
    async with asyncio.TaskGroup() as tasks:
        bench = BinderFixture(tasks)
        bound = bench.stage.pod("b")
        bench.stage.put(replace(bound, spec=replace(bound.spec, node_name="n1")))
        bench.stage.cache.assume("uid-default-c", "n1", (chosen("c"),))
        for name in "abcx":
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-default-{name}", "controller": True}
            annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
            meta = {
                "annotations": annotations,
                "ownerReferences": [owner],
                "finalizers": [DELETE_PROTECTION],
            }
            bench.api.put(f"{name}-claim", metadata=meta)
        bench.api.put("plain", metadata={})
        await bench.extended.delete_left()
    assert claims(bench) == ["b-claim", "c-claim", "plain", "x-claim"]


async def test_a_pod_whose_devices_another_claim_has_is_not_bound() -> None:
    """Two schedulers may choose the same at the same time."""
    async with binding() as bench:
        device = {"request": "r", "driver": "d.example.com", "pool": "n1", "device": "gpu-a"}
        bench.api.put("theirs", status={"allocation": {"devices": {"results": [device]}}})
    assert (claims(bench), bench.outcomes, bench.sent("a")) == (["theirs"], ["failed a"], 0)
