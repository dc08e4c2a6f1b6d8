"""Volumes before binds: what is written for a claim, and how it ends."""

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
from cpg_scheduler.binding.volumes import VolumeBinder, is_final
from cpg_scheduler.testing.fake_connection import FakeConnection, SentRequest
from cpg_scheduler.testing.stage import Stage

WAITS = "waits"
NODE = "volume.kubernetes.io/selected-node"
VOLUME, CLAIM = "/api/v1/persistentvolumes/pv", "/api/v1/namespaces/default/persistentvolumeclaims/x"
STATIC, MADE = VolumeAllocation("default/x", "pv", "n1"), VolumeAllocation("default/x", None, "n1")


class Depot:
    """A pod with a claim and a volume for it, as the watch and as the API server have them, at version 5."""

    def __init__(self) -> None:
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

    async def run(self, *choices: VolumeAllocation) -> None:
        """Furnish the pod."""
        self.outcome = await self.plugin.prebind([self.stage.pod("p")], choices)


@asynccontextmanager
async def furnishing(*choices: VolumeAllocation, depot: Depot | None = None) -> AsyncIterator[Depot]:
    """Furnish a pod; give it time before and after what the test lets happen."""
    depot = depot or Depot()
    running = asyncio.create_task(depot.run(*choices))
    await turns()
    yield depot
    await asyncio.wait_for(running, 5)


async def turns() -> None:
    """Let others run for a while."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_volume_is_set_aside_for_its_claim() -> None:
    """Unless somebody has written it meanwhile; that it is bound is what the watch says."""
    async with furnishing(STATIC) as depot:
        assert depot.outcome == WAITS
        depot.show(claim("x", bound_to="pv"), 8)
    assert depot.outcome == ""
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "x"}
    metadata = {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}, "resourceVersion": "7"}
    body = {"metadata": metadata, "spec": {"claimRef": reference | {"uid": "uid-x"}}}
    assert depot.api.writes == [SentRequest("PATCH", VOLUME, body)]


async def test_a_volume_that_a_person_has_set_aside_stays_theirs() -> None:
    """The claim is identified, and the controller is not told that it may let the volume go."""
    depot = Depot()
    depot.api.objects[VOLUME] = depot.volume(claimRef={"namespace": "default", "name": "x"})
    async with furnishing(STATIC, depot=depot):
        depot.show(claim("x", bound_to="pv"), 8)
    assert depot.api.writes[0].body["metadata"]["annotations"] == {}


async def test_a_node_is_asked_for_a_volume() -> None:
    """By an annotation, which the provisioner of the class looks for."""
    async with furnishing(MADE) as depot:
        depot.show(claim("x", node="n1"), 8)
        await turns()
        assert depot.outcome == WAITS
        depot.show(claim("x", node="n1", bound_to="made"), 9)
    assert depot.outcome == ""
    body = {"metadata": {"annotations": {NODE: "n1"}, "resourceVersion": "7"}}
    assert depot.api.writes == [SentRequest("PATCH", CLAIM, body)]


@pytest.mark.parametrize("bound", [False, True])
async def test_a_claim_of_an_earlier_leader_is_waited_for(bound: bool) -> None:  # noqa: FBT001 - a case
    """It has a node already, and nothing is to be written."""
    depot = Depot()
    depot.show(claim("x", node="n1", bound_to="made" if bound else ""), 6)
    async with furnishing(depot=depot):
        assert (depot.outcome == "") == bound
        depot.show(claim("x", node="n1", bound_to="made"), 8)
    assert (depot.outcome, depot.api.writes) == ("", [])


@pytest.mark.parametrize(
    ("choice", "path", "there"),
    [
        (STATIC, VOLUME, {"claimRef": {"namespace": "default", "name": "x", "uid": "uid-x"}}),
        (MADE, CLAIM, {"node": "n1"}),
        (MADE, CLAIM, {"volumeName": "made"}),
    ],
)
async def test_what_has_been_done_is_not_done_again(choice: VolumeAllocation, path: str, there: dict[str, Any]) -> None:
    """As by a leader before, or by another pod with the same claim."""
    depot = Depot()
    depot.api.objects[path] = depot.volume(**there) if path == VOLUME else depot.claim(**there)
    async with furnishing(choice, depot=depot):
        depot.show(claim("x", bound_to="pv"), 8)
    assert (depot.outcome, depot.api.writes) == ("", [])


OTHER = {"namespace": "default", "name": "y", "uid": "uid-y"}


@pytest.mark.parametrize(
    ("choice", "there", "why"),
    [
        (STATIC, {"claimRef": OTHER}, "persistentvolume 'pv' belongs to another claim or is being deleted"),
        (MADE, {"uid": "another"}, 'persistentvolumeclaim "default/x" is gone or terminating'),
        (MADE, {"node": "n2"}, 'the volume of persistentvolumeclaim "default/x" is being made at node n2'),
        (MADE, {"accessModes": 3}, "default/x cannot be read: spec.accessModes"),
    ],
)
async def test_a_choice_that_the_api_server_contradicts_ends_it(
    choice: VolumeAllocation, there: dict[str, Any], why: str
) -> None:
    """The watch had not shown it when it was made."""
    depot = Depot()
    depot.api.objects[VOLUME if choice is STATIC else CLAIM] = (
        depot.volume(**there) if choice is STATIC else depot.claim(**there)
    )
    async with furnishing(choice, depot=depot):
        pass
    assert depot.outcome.startswith(why)
    assert depot.api.writes == []


async def test_a_provisioner_says_no_by_taking_the_node_back() -> None:
    """What is known from before the node was asked for is no answer."""
    async with furnishing(MADE) as depot:
        depot.show(claim("x", size="2Gi"), 6)
        await turns()
        assert depot.outcome == WAITS
        depot.show(claim("x"), 8)
    assert depot.outcome == 'no volume could be made for persistentvolumeclaim "default/x": its events say why'


async def test_a_claim_that_goes_ends_it() -> None:
    """Before anything is written for it, or while it is waited for."""
    depot = Depot()
    depot.stage.delete(claim("x"))
    async with furnishing(MADE, depot=depot):
        pass
    assert depot.outcome == 'persistentvolumeclaim "default/x" is gone or terminating'
    async with furnishing(MADE) as depot:
        depot.show(claim("x", node="n1", deleted="2026-01-01T00:00:00Z"), 8)
    assert depot.outcome == 'persistentvolumeclaim "default/x" is gone or terminating'


@pytest.mark.parametrize("taken", [False, True])
async def test_a_volume_that_is_lost_ends_it(taken: bool) -> None:  # noqa: FBT001 - a case
    """It is deleted, or goes to another claim after all; how it was before is no answer."""
    async with furnishing(STATIC) as depot:
        depot.show(volume("pv", size="2Gi"), 6)
        await turns()
        depot.show(volume("pv", claimed_by="x", claim_uid="uid-x"), 8)
        await turns()
        assert depot.outcome == WAITS
        if taken:
            depot.show(volume("pv", claimed_by="y", claim_uid="uid-y"), 9)
        else:
            depot.stage.delete(volume("pv"))
    assert depot.outcome == "persistentvolumeclaim \"default/x\" has lost persistentvolume 'pv'"


async def test_a_pod_that_goes_ends_it() -> None:
    """Its room is wanted by others."""
    async with furnishing(MADE) as depot:
        depot.stage.delete(depot.stage.pod("p"))
    assert depot.outcome == "one of its pods is gone or terminating"


async def test_patience_ends_it() -> None:
    """Whoever has not answered by then is named."""
    depot = Depot()
    depot.plugin = VolumeBinder(cast("Connection", depot.api), depot.stage.cache, timeout=0.01)
    async with furnishing(MADE, depot=depot):
        pass
    assert depot.outcome == 'persistentvolumeclaim "default/x" not bound within 0.01 s'


@pytest.mark.parametrize(
    "error", [ConnectionFailedError("", "", ""), ApiError(409, "Conflict", ""), ApiError(500, "InternalError", "")]
)
@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_a_write_is_tried_until_it_is_answered(error: Exception, method: str) -> None:
    """After another look, since it may have worked."""
    depot, left = Depot(), [error] * 2
    depot.api.error = lambda write: left.pop() if left and write.method == method else None
    async with furnishing(MADE, depot=depot):
        depot.show(claim("x", bound_to="made"), 8)
    assert (depot.outcome, len(depot.api.writes), depot.waits) == ("", 1, [0.25, 0.5])


async def test_a_write_that_is_refused_ends_it() -> None:
    """In the words of the API server."""
    depot = Depot()
    depot.api.error = lambda write: ApiError(403, "Forbidden", "no quota") if write.method == "PATCH" else None
    async with furnishing(MADE, depot=depot):
        pass
    assert depot.outcome == "403 Forbidden: no quota"


@pytest.mark.parametrize(
    ("status", "final"),
    [(400, True), (403, True), (404, True), (422, True), (408, False), (409, False), (429, False), (500, False)],
)
def test_some_answers_are_final(status: int, final: bool) -> None:  # noqa: FBT001 - a case
    """Others may be different the next time."""
    assert is_final(ApiError(status, "", "")) == final


def test_the_claims_that_are_not_bound_are_named() -> None:
    """By kind and name, so that a condition can say what a pod waits for."""
    depot = Depot()
    assert depot.plugin.unready([depot.stage.pod("p")]) == ['persistentvolumeclaim "default/x"']
    depot.show(claim("x", bound_to="pv"), 8)
    assert depot.plugin.unready([depot.stage.pod("p")]) == []
