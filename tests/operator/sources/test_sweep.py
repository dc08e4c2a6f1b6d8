"""The sweep, which compares the view with the API server."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.manifests import to_manifest
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.flavours import CRD
from cpg_client.resources import CPG_POD_GROUPS, Resource
from cpg_client.timing import Timing
from cpg_client.versions import VersionsWentBackError
from cpg_engine.testing.builders import metadata, pod_group
from cpg_operator.metrics import MetricsSnapshot, OperatorMetrics
from cpg_operator.sources.rejections import Rejections
from cpg_operator.sources.sweep import Sweeper
from cpg_operator.testing.fixtures import RecordingQueue
from cpg_operator.view.cluster_view import ClusterView


class Server:
    """Answers LISTs with the objects at each path."""

    def __init__(self) -> None:
        """Hold no objects."""
        self.items: dict[str, list[Any]] = {}
        self.asked: list[str] = []
        self.refused: dict[str, int] = {}
        self.meanwhile: Callable[[], object] = lambda: None
        self.timing = Timing(clock=self._later)
        self._now = 0.0

    def _later(self) -> float:
        self._now += 0.005
        return self._now

    async def get(self, path: str, _: object = None) -> bytes:
        """Answer a LIST."""
        self.asked.append(path)
        self.meanwhile()
        if path in self.refused:
            raise ApiError(self.refused[path], "Reason", "not yours", request=path)
        return msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": self.items.get(path, [])})


class Rig:
    """A sweeper for PodGroups of our flavour."""

    def __init__(self, *namespaces: str) -> None:
        """Start with an empty view."""
        kinds: dict[str, dict[type, Resource]] = {CRD: {PodGroup: CPG_POD_GROUPS}}
        self.view = ClusterView(kinds, RecordingQueue(), namespaces=namespaces)
        self.server = Server()
        self.metrics = OperatorMetrics()
        connection = cast("Connection", self.server)
        self.sweeper = Sweeper(connection, self.view, namespaces=namespaces, rejections=Rejections(self.metrics))

    def rejected(self) -> bool:
        """Return whether exactly one object did not fit its type."""
        page = self.metrics.page(MetricsSnapshot(states=(), queued=0, pending_writes=0, watch_age=0.0)).decode()
        return 'cpg_operator_refused_objects_total{kind="PodGroup"} 1.0' in page

    def hold(self, groups: Sequence[Group], path: str = "/apis/scheduling.cpg.dev/v1alpha3/podgroups") -> None:
        """Have the server hold these groups."""
        self.server.items[path] = [to_manifest(group) for group in groups]

    def names(self) -> set[str]:
        """Return the names that the view knows."""
        return {one.metadata.key for one in self.view.by_uid(CRD, PodGroup).values()}


def group(name: str, version: str = "1", *, uid: str = "", namespace: str = "default") -> PodGroup:
    """Return one version of a group."""
    meta = replace(metadata(name, namespace=namespace), resource_version=version)
    return pod_group(name, meta=replace(meta, uid=uid) if uid else meta)


@pytest.fixture
def rig() -> Rig:
    """Return a sweeper for all namespaces."""
    return Rig()


async def test_the_first_sweep_fills_the_view_and_the_second_finds_nothing_wrong(rig: Rig) -> None:
    """The view has the objects of the server."""
    rig.hold([group("a"), group("b")])
    assert await rig.sweeper.sweep() == 2
    assert rig.names() == {"default/a", "default/b"}
    assert await rig.sweeper.sweep() == 0


async def test_missed_changes_are_found(rig: Rig) -> None:
    """A deletion, a change, a creation, and an object that was created again under its name."""
    for known in (group("gone"), group("old"), group("again", uid="first")):
        rig.view.put(CRD, known)
    rig.hold([group("old", "2"), group("new"), group("again", "3", uid="second")])
    assert await rig.sweeper.sweep() == 4
    assert rig.names() == {"default/old", "default/new", "default/again"}
    found = {one.metadata.name: one.metadata for one in rig.view.by_uid(CRD, PodGroup).values()}
    assert (found["old"].resource_version, found["again"].uid) == ("2", "second")


async def test_a_newer_version_in_the_view_stays(rig: Rig) -> None:
    """A LIST may be older than Kopf's events meanwhile."""
    rig.view.put(CRD, group("a", "3"))
    rig.hold([group("a", "4"), group("b", "4")])

    def change() -> None:
        rig.view.put(CRD, group("a", "5"))
        rig.view.put(CRD, group("b", "5"))

    rig.server.meanwhile = change
    assert await rig.sweeper.sweep() == 0


async def test_a_list_with_an_older_version_than_before_it_shows_a_restored_etcd(rig: Rig) -> None:
    """The view would keep the newer state, which is void. Another object of the name is no older version."""
    rig.view.put(CRD, group("a", "5"))
    rig.hold([group("a", "4", uid="second")])
    assert await rig.sweeper.sweep() == 1
    rig.hold([group("a", "3", uid="second")])
    with pytest.raises(VersionsWentBackError, match="/podgroups default/a went back from 4 to 3"):
        await rig.sweeper.sweep()


async def test_an_object_that_is_deleted_during_a_list_stays_deleted(rig: Rig) -> None:
    """The LIST may be older than the deletion, which Kopf reports once; also of an object that was never known."""
    known, unknown, again = group("known"), group("unknown"), group("again", uid="first")
    rig.view.put(CRD, known)
    rig.view.put(CRD, again)
    rig.hold([known, unknown, again, group("there")])

    def delete() -> None:
        rig.view.remove(CRD, known)
        rig.view.remove(CRD, unknown)
        rig.view.put(CRD, group("again", uid="second"))

    rig.server.meanwhile = delete
    assert await rig.sweeper.sweep() == 1
    assert rig.names() == {"default/again", "default/there"}
    assert "second" in rig.view.by_uid(CRD, PodGroup)
    rig.server.meanwhile = lambda: None
    rig.hold([group("again", uid="second")])
    assert await rig.sweeper.sweep() == 1
    assert rig.names() == {"default/again"}


async def test_other_tasks_run_while_a_long_list_is_processed(rig: Rig) -> None:
    """In both of its parts; an object that is deleted meanwhile stays deleted."""
    many = [group(f"g{number:02}") for number in range(40)]
    rig.hold(many)
    seen: list[int] = []

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            seen.append(len(rig.names()))
            rig.view.remove(CRD, many[-1])

    task = asyncio.create_task(others())
    assert await rig.sweeper.sweep() == 39
    assert any(0 < count < 39 for count in seen)
    rig.hold([])
    seen.clear()
    assert await rig.sweeper.sweep() == 39
    assert any(0 < count < 39 for count in seen)
    task.cancel()


async def test_an_object_that_does_not_fit_its_type_is_reported_and_removed(rig: Rig) -> None:
    """Even if an earlier version of it did fit."""
    rig.view.put(CRD, group("bad"))
    bad = to_manifest(group("bad", "2"))
    bad["spec"] = 7
    rig.server.items["/apis/scheduling.cpg.dev/v1alpha3/podgroups"] = [bad]
    assert await rig.sweeper.sweep() == 1
    assert (rig.rejected(), rig.names()) == (True, set())


async def test_only_the_chosen_namespaces_are_listed() -> None:
    """Each by its own LIST, which removes nothing of the others."""
    rig = Rig("x", "y")
    rig.hold([group("a", namespace="x")], "/apis/scheduling.cpg.dev/v1alpha3/namespaces/x/podgroups")
    rig.hold([group("b", namespace="y")], "/apis/scheduling.cpg.dev/v1alpha3/namespaces/y/podgroups")
    await rig.sweeper.sweep()
    assert rig.names() == {"x/a", "y/b"}
    assert all("/namespaces/" in path for path in rig.server.asked)
    assert await rig.sweeper.sweep() == 0


async def test_a_namespace_that_may_not_be_read_hides_no_other() -> None:
    """It was deleted, or the rights in it; its known objects stay."""
    rig = Rig("x", "y")
    paths = {name: f"/apis/scheduling.cpg.dev/v1alpha3/namespaces/{name}/podgroups" for name in "xy"}
    rig.hold([group("a", namespace="x")], paths["x"])
    await rig.sweeper.sweep()
    rig.server.refused = {paths["x"]: 403}
    rig.hold([group("b", namespace="y")], paths["y"])
    assert await rig.sweeper.sweep() == 1
    assert rig.names() == {"x/a", "y/b"}


async def test_it_is_an_error_where_no_namespace_may_be_read() -> None:
    """So is any other failure of a LIST, after the others have been processed."""
    rig = Rig("x", "y")
    paths = {name: f"/apis/scheduling.cpg.dev/v1alpha3/namespaces/{name}/podgroups" for name in "xy"}
    rig.server.refused = dict.fromkeys(paths.values(), 403)
    with pytest.raises(ApiError, match="403"):
        await rig.sweeper.sweep()
    rig.server.refused = {paths["x"]: 500}
    rig.hold([group("b", namespace="y")], paths["y"])
    with pytest.raises(ApiError, match="500"):
        await rig.sweeper.sweep()
    assert rig.names() == {"y/b"}


async def test_a_namespace_is_read_once_its_pods_and_groups_are() -> None:
    """Whichever comes last."""
    rig = Rig("x", "y")
    rig.view.mark_read("x", Pod)
    rig.server.refused = {"/apis/scheduling.cpg.dev/v1alpha3/namespaces/x/podgroups": 403}
    await rig.sweeper.sweep()
    assert rig.view.is_unread("x")
    rig.server.refused.clear()
    await rig.sweeper.sweep()
    assert not rig.view.is_unread("x")
    assert rig.view.is_unread("y")


async def test_a_list_that_begins_again_voids_its_first_pages(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list is compared page by page, and an object of an expired page may be gone by now."""

    def page(name: str, more: str = "") -> bytes:
        items = [to_manifest(group(name))]
        return msgspec.json.encode({"metadata": {"resourceVersion": "9", "continue": more}, "items": items})

    expired = ApiError(410, "Expired", "too old")
    answers = iter([page("gone", "x"), None, page("there", "y"), page("new")])

    async def get(_: str, __: object = None) -> bytes:
        answer = next(answers)
        if answer is None:
            raise expired
        return answer

    monkeypatch.setattr(rig.server, "get", get)
    rig.view.put(CRD, group("there"))
    assert await rig.sweeper.sweep() == 3
    assert rig.names() == {"default/there", "default/new"}
