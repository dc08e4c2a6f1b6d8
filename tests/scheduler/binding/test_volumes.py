"""The PreBind plugin for volumes: what it writes for a claim, and how it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from msgspec.structs import replace

from cpg_api.core.volumes import PersistentVolume, PersistentVolumeClaim
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.timing import Timing
from cpg_engine.decisions import VolumeAllocation
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import DRIVER, claim, storage_class, using, volume
from cpg_scheduler.binding.batch import BindBatch
from cpg_scheduler.binding.prebind import is_final
from cpg_scheduler.binding.volumes import VolumeBinder
from cpg_scheduler.testing.fake_connection import FakeConnection, SentRequest
from cpg_scheduler.testing.stage import Stage

WAITS = "waits"
NODE = "volume.kubernetes.io/selected-node"
VOLUME, CLAIM = "/api/v1/persistentvolumes/pv", "/api/v1/namespaces/default/persistentvolumeclaims/x"
STATIC, MADE = VolumeAllocation("default/x", "pv", "n1"), VolumeAllocation("default/x", None, "n1")


class VolumeFixture:
    """A pod with a claim and a volume, as the watch and as the API server have them, at version 5."""

    def __init__(self) -> None:
        """Start with a plugin that waits for 5 seconds."""
        self.api = FakeConnection(Timing(sleep=self._sleep))
        self.waits: list[float] = []
        self.stage = Stage(node("n1"), pod("p", volumes=using("x")), storage_class(provisioner=DRIVER))
        self.show(claim("x"), 5)
        self.show(volume("pv"), 5)
        self.stage.cache.assume("uid-default-p", "n1")
        self.api.objects[VOLUME] = self.volume()
        self.api.objects[CLAIM] = self.claim()
        self.plugin = VolumeBinder(cast("Connection", self.api), self.stage.cache, timeout=5)
        self.outcome = WAITS

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def volume(self, **spec: Any) -> dict[str, Any]:
        """Return what the API server answers about the volume."""
        return {"metadata": {"name": "pv", "resourceVersion": "7"}, "spec": spec}

    def claim(self, uid: str = "uid-x", node: str = "", **spec: Any) -> dict[str, Any]:
        """Return what the API server answers about the claim."""
        meta: dict[str, Any] = {"name": "x", "namespace": "default", "uid": uid, "resourceVersion": "7"}
        return {"metadata": meta | ({"annotations": {NODE: node}} if node else {}), "spec": spec}

    def show(self, found: PersistentVolumeClaim | PersistentVolume, version: int) -> None:
        """Let the watch show a claim or a volume as of a version."""
        self.stage.put(replace(found, metadata=replace(found.metadata, resource_version=str(version))))

    def batch(self, *choices: VolumeAllocation) -> BindBatch:
        """Return the batch of the pod."""
        pod, uid = self.stage.pod("p"), "uid-default-p"
        return BindBatch(1, self.stage.cache.unit_of(pod), {uid: pod}, {uid: "n1"}, {uid: choices})

    async def run(self, *choices: VolumeAllocation) -> None:
        """Get the volumes of the pod ready."""
        self.outcome = await self.plugin.prebind(self.batch(*choices))


@asynccontextmanager
async def prebinding(*choices: VolumeAllocation, fixture: VolumeFixture | None = None) -> AsyncIterator[VolumeFixture]:
    """Run the plugin for a pod while the block runs, and until it has ended."""
    fixture = fixture or VolumeFixture()
    running = asyncio.create_task(fixture.run(*choices))
    await run_others()
    yield fixture
    await asyncio.wait_for(running, 5)


async def run_others() -> None:
    """Let other tasks run for a while."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_an_existing_volume_is_reserved_for_its_claim() -> None:
    """In the version that was read; the watch says when it is bound."""
    async with prebinding(STATIC) as fixture:
        assert fixture.outcome == WAITS
        fixture.show(claim("x", bound_to="pv"), 8)
    assert fixture.outcome == ""
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "x"}
    metadata = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}, "resourceVersion": "7"}
    body = {"metadata": metadata, "spec": {"claimRef": reference | {"uid": "uid-x"}}}
    assert fixture.api.writes == [SentRequest("PATCH", VOLUME, body)]


async def test_a_volume_that_a_user_has_reserved_is_not_marked_as_bound_by_the_controller() -> None:
    """The UID of the claim is added, and the controller must not release the volume."""
    fixture = VolumeFixture()
    fixture.api.objects[VOLUME] = fixture.volume(claimRef={"namespace": "default", "name": "x"})
    async with prebinding(STATIC, fixture=fixture):
        fixture.show(claim("x", bound_to="pv"), 8)
    assert fixture.api.writes[0].body["metadata"]["annotations"] == {}


async def test_a_claim_is_annotated_with_its_node() -> None:
    """The provisioner of its class reads the annotation."""
    async with prebinding(MADE) as fixture:
        fixture.show(claim("x", node="n1"), 8)
        await run_others()
        assert fixture.outcome == WAITS
        fixture.show(claim("x", node="n1", bound_to="made"), 9)
    assert fixture.outcome == ""
    body = {"metadata": {"annotations": {NODE: "n1"}, "resourceVersion": "7"}}
    assert fixture.api.writes == [SentRequest("PATCH", CLAIM, body)]


@pytest.mark.parametrize("bound", [False, True])
async def test_a_claim_that_an_earlier_leader_has_annotated_is_waited_for(bound: bool) -> None:  # noqa: FBT001 - a case
    """Nothing is written."""
    fixture = VolumeFixture()
    fixture.show(claim("x", node="n1", bound_to="made" if bound else ""), 6)
    async with prebinding(fixture=fixture):
        assert (fixture.outcome == "") == bound
        fixture.show(claim("x", node="n1", bound_to="made"), 8)
    assert (fixture.outcome, fixture.api.writes) == ("", [])


@pytest.mark.parametrize(
    ("allocation", "path", "there"),
    [
        (STATIC, VOLUME, {"claimRef": {"namespace": "default", "name": "x", "uid": "uid-x"}}),
        (MADE, CLAIM, {"node": "n1"}),
        (MADE, CLAIM, {"volumeName": "made"}),
    ],
)
async def test_an_allocation_that_was_written_is_not_written_again(
    allocation: VolumeAllocation, path: str, there: dict[str, Any]
) -> None:
    """By an earlier leader, or for another pod with the same claim."""
    fixture = VolumeFixture()
    fixture.api.objects[path] = fixture.volume(**there) if path == VOLUME else fixture.claim(**there)
    async with prebinding(allocation, fixture=fixture):
        fixture.show(claim("x", bound_to="pv"), 8)
    assert (fixture.outcome, fixture.api.writes) == ("", [])


OTHER = {"namespace": "default", "name": "y", "uid": "uid-y"}


@pytest.mark.parametrize(
    ("allocation", "there", "problem"),
    [
        (STATIC, {"claimRef": OTHER}, "persistentvolume 'pv' belongs to another claim or is being deleted"),
        (MADE, {"uid": "another"}, 'persistentvolumeclaim "default/x" is gone or terminating'),
        (MADE, {"node": "n2"}, 'the volume of persistentvolumeclaim "default/x" is being made at node n2'),
        (MADE, {"accessModes": 3}, "default/x cannot be read: spec.accessModes"),
    ],
)
async def test_an_allocation_that_contradicts_the_api_server_is_a_problem(
    allocation: VolumeAllocation, there: dict[str, Any], problem: str
) -> None:
    """The watch had not shown it when the decision was made."""
    fixture = VolumeFixture()
    fixture.api.objects[VOLUME if allocation is STATIC else CLAIM] = (
        fixture.volume(**there) if allocation is STATIC else fixture.claim(**there)
    )
    async with prebinding(allocation, fixture=fixture):
        pass
    assert fixture.outcome.startswith(problem)
    assert fixture.api.writes == []


async def test_a_provisioner_refuses_by_removing_the_annotation() -> None:
    """A version from before our write says nothing."""
    async with prebinding(MADE) as fixture:
        fixture.show(claim("x", size="2Gi"), 6)
        await run_others()
        assert fixture.outcome == WAITS
        fixture.show(claim("x"), 8)
    assert fixture.outcome == 'no volume could be made for persistentvolumeclaim "default/x": its events say why'


async def test_a_deleted_claim_is_a_problem() -> None:
    """Before the write, and while the claim is waited for."""
    fixture = VolumeFixture()
    fixture.stage.delete(claim("x"))
    async with prebinding(MADE, fixture=fixture):
        pass
    assert fixture.outcome == 'persistentvolumeclaim "default/x" is gone or terminating'
    async with prebinding(MADE) as fixture:
        fixture.show(claim("x", node="n1", deleted="2026-01-01T00:00:00Z"), 8)
    assert fixture.outcome == 'persistentvolumeclaim "default/x" is gone or terminating'


@pytest.mark.parametrize("taken", [False, True])
async def test_a_lost_volume_is_a_problem(taken: bool) -> None:  # noqa: FBT001 - a case
    """It is deleted or reserved for another claim; a version from before our write says nothing."""
    async with prebinding(STATIC) as fixture:
        fixture.show(volume("pv", size="2Gi"), 6)
        await run_others()
        fixture.show(volume("pv", claimed_by="x", claim_uid="uid-x"), 8)
        await run_others()
        assert fixture.outcome == WAITS
        if taken:
            fixture.show(volume("pv", claimed_by="y", claim_uid="uid-y"), 9)
        else:
            fixture.stage.delete(volume("pv"))
    assert fixture.outcome == "persistentvolumeclaim \"default/x\" has lost persistentvolume 'pv'"


async def test_a_deleted_pod_is_a_problem() -> None:
    """Its batch must not hold its room any longer."""
    async with prebinding(MADE) as fixture:
        fixture.stage.delete(fixture.stage.pod("p"))
    assert fixture.outcome == "one of its pods is gone or terminating"


async def test_a_timeout_is_a_problem() -> None:
    """The claims that are not bound by then are named."""
    fixture = VolumeFixture()
    fixture.plugin = VolumeBinder(cast("Connection", fixture.api), fixture.stage.cache, timeout=0.01)
    async with prebinding(MADE, fixture=fixture):
        pass
    assert fixture.outcome == 'persistentvolumeclaim "default/x" not bound within 0.01 s'


@pytest.mark.parametrize(
    "error", [ConnectionFailedError("", "", ""), ApiError(409, "Conflict", ""), ApiError(500, "InternalError", "")]
)
@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_a_write_is_repeated_until_it_is_answered(error: Exception, method: str) -> None:
    """The object is read before each, because the last write may have worked."""
    fixture, left = VolumeFixture(), [error] * 2
    fixture.api.error = lambda write: left.pop() if left and write.method == method else None
    async with prebinding(MADE, fixture=fixture):
        fixture.show(claim("x", bound_to="made"), 8)
    assert (fixture.outcome, len(fixture.api.writes), fixture.waits) == ("", 1, [0.25, 0.5])


async def test_a_refused_write_is_a_problem() -> None:
    """With the answer of the API server."""
    fixture = VolumeFixture()
    fixture.api.error = lambda write: ApiError(403, "Forbidden", "no quota") if write.method == "PATCH" else None
    async with prebinding(MADE, fixture=fixture):
        pass
    assert fixture.outcome == "403 Forbidden: no quota"


@pytest.mark.parametrize(
    ("status", "final"),
    [(400, True), (403, True), (404, True), (422, True), (408, False), (409, False), (429, False), (500, False)],
)
def test_some_errors_are_final(status: int, final: bool) -> None:  # noqa: FBT001 - a case
    """Others may be different when the request is repeated."""
    assert is_final(ApiError(status, "", "")) == final


def test_unbound_claims_are_unready() -> None:
    """By kind and name, for the condition of the pod."""
    fixture = VolumeFixture()
    assert fixture.plugin.unready(fixture.batch()) == ['persistentvolumeclaim "default/x"']
    fixture.show(claim("x", bound_to="pv"), 8)
    assert fixture.plugin.unready(fixture.batch()) == []
