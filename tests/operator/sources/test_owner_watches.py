"""The watches of owners: from when their kind is served until it is no longer."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self, cast

import msgspec
import pytest

from cpg_api.integrations import deployment, job, jobset, statefulset
from cpg_api.scheduling.forest import GroupKey
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.loop_pauses import LoopPauses
from cpg_client.resources import Resource
from cpg_client.stores import Synced
from cpg_client.timing import Timing
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.sources.owner_watches import OwnerWatches
from cpg_operator.sources.rejections import Rejections
from cpg_operator.view.owner_index import OwnerIndex

JOB = {"metadata": {"name": "a", "namespace": "default", "uid": "u", "labels": {"x": "y"}}, "spec": {}}


class Server:
    """Serves some kinds; LISTs have one object, and watches stay silent."""

    def __init__(self) -> None:
        """Serve nothing."""
        self.kinds: dict[str, str] = {}
        self.fails = False
        self.items: list[Any] = [JOB]
        self.lists: list[str] = []
        self.selectors: list[object] = []
        self.rounds = 0
        self.timing, self.pauses = Timing(sleep=self._sleep), LoopPauses(lambda: 0.0)

    async def _sleep(self, _: float) -> None:
        self.rounds += 1
        await asyncio.sleep(0)

    async def get(self, path: str, params: Mapping[str, object] | None = None, *_: object) -> bytes:
        """Answer discovery and LISTs."""
        if self.fails:
            raise ApiError(500, "InternalError", "not now", request=path)
        if path in self.kinds:
            kind = self.kinds[path]
            found = {"name": f"{kind.lower()}s", "kind": kind, "namespaced": True}
            return msgspec.json.encode({"resources": [found]})
        if path.rpartition("/")[2] not in {"jobs", "jobsets", "replicasets", "statefulsets"}:
            raise ApiError(404, "NotFound", "not served", request=path)
        self.lists.append(path)
        self.selectors.append((params or {}).get("labelSelector"))
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": self.items})

    async def stream(self, *_: object, **__: object) -> AsyncIterator[bytes]:
        """Open a watch in which nothing happens."""
        await asyncio.Event().wait()
        yield b""


class Rig:
    """The watches of Jobs and JobSets."""

    def __init__(self, *namespaces: str) -> None:
        """Watch nothing yet."""
        self.server = Server()
        self.enqueued: list[GroupKey] = []
        self.index = OwnerIndex(self.enqueued.append)
        self.metrics = OperatorMetrics()
        self.watches = OwnerWatches(
            cast("Connection", self.server),
            self.index,
            [job.KIND, jobset.KIND, deployment.KIND, statefulset.KIND],
            namespaces=namespaces,
            rejections=Rejections(self.metrics),
        )

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self.watches.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def pass_rounds(self) -> None:
        """Wait for two more looks at what is served."""
        seen = self.server.rounds
        async with asyncio.timeout(5):
            while self.server.rounds < seen + 2:  # noqa: ASYNC110 - another task counts
                await asyncio.sleep(0)


@pytest.fixture
def rig() -> Rig:
    """Return watches of all namespaces."""
    return Rig()


async def test_a_kind_is_watched_while_it_is_served(rig: Rig) -> None:
    """Its CRD may come later, and go."""
    async with rig:
        await rig.pass_rounds()
        assert rig.server.lists == []
        rig.server.kinds["/apis/batch/v1"] = "Job"
        await rig.pass_rounds()
        assert rig.enqueued == [GroupKey("Job", "default", "a")]
        assert rig.index.get(rig.enqueued[0]).metadata.labels == {}
        del rig.server.kinds["/apis/batch/v1"]
        await rig.pass_rounds()
        assert rig.index.served("Job") is None
        assert not rig.index.is_gone(GroupKey("Job", "default", "x"))
        assert rig.index.get(rig.enqueued[0]) is None


async def test_each_namespace_has_a_watch() -> None:
    """Where the operator is limited to some."""
    rig = Rig("a", "b")
    rig.server.kinds["/apis/batch/v1"] = "Job"
    async with rig:
        await rig.pass_rounds()
        assert set(rig.server.lists) == {f"/apis/batch/v1/namespaces/{name}/jobs" for name in "ab"}
        unknown = [GroupKey("Job", name, "x") for name in "abc"]
        assert [rig.index.is_gone(key) for key in unknown] == [True, True, False]
        assert not rig.index.is_gone(GroupKey("Job", "default", "a"))
        assert rig.index.is_read("Job")


def test_a_kind_is_read_when_each_watch_has_listed_it(rig: Rig) -> None:
    """Before, an object that is not known may still exist."""
    assert not rig.index.is_read("Job")
    rig.index.add_kind(job.KIND, Resource("batch", "v1", "jobs", "Job"), watches=2)
    for namespace, expected in (("a", False), ("b", True)):
        rig.index.take("Job", Synced(), namespace)
        assert rig.index.is_read("Job") is expected
    rig.index.forget_kind("Job")
    assert not rig.index.is_read("Job")


async def test_owners_are_selected_by_their_labels(rig: Rig) -> None:
    """So ReplicaSets that do not opt in cost nothing."""
    rig.server.kinds["/apis/apps/v1"] = "ReplicaSet"
    async with rig:
        await rig.pass_rounds()
        assert rig.server.selectors == ["scheduling.cpg.dev/gang=true"]


async def test_owners_are_reduced(rig: Rig) -> None:
    """Of StatefulSets that do not opt in, nothing is kept that changes while they run."""
    rig.server.items = [{**JOB, "spec": {"replicas": 7}, "status": {"readyReplicas": 3}}]
    rig.server.kinds["/apis/apps/v1"] = "StatefulSet"
    async with rig:
        await rig.pass_rounds()
        (found,) = rig.enqueued
        assert rig.index.get(found).spec == statefulset.StatefulSetSpec()


async def test_failures_are_retried(rig: Rig) -> None:
    """Neither discovery nor a watch that fails ends anything."""
    rig.server.fails = True
    async with rig:
        await rig.pass_rounds()
        rig.server.fails = False
        rig.server.kinds["/apis/batch/v1"] = "Job"
        await rig.pass_rounds()
        assert rig.enqueued


async def test_an_object_that_does_not_fit_is_reported(rig: Rig) -> None:
    """And counts as absent."""
    rig.server.items = [{**JOB, "spec": {"parallelism": "many"}}]
    rig.server.kinds["/apis/batch/v1"] = "Job"
    async with rig:
        await rig.pass_rounds()
        assert rig.enqueued == []
