"""A comparison of the view with what is there."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.manifests import to_manifest
from cpg_api.parsing import Rejected
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.flavours import CRD
from cpg_client.resources import CPG_POD_GROUPS, Resource
from cpg_client.timing import Timing
from cpg_engine.testing.builders import metadata, pod_group
from cpg_operator.sources.sweep import Sweeper
from cpg_operator.view.cluster_view import ClusterView


class Server:
    """Answers lists, of what is there by path."""

    def __init__(self) -> None:
        """Have nothing."""
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
        """Answer a list."""
        self.asked.append(path)
        self.meanwhile()
        if path in self.refused:
            raise ApiError(self.refused[path], "Reason", "not yours", request=path)
        return msgspec.json.encode({"metadata": {"resourceVersion": "9"}, "items": self.items.get(path, [])})


class Rig:
    """A view of PodGroups of our flavour, and a server."""

    def __init__(self, *namespaces: str) -> None:
        """Begin with nothing, anywhere."""
        kinds: dict[str, dict[type, Resource]] = {CRD: {PodGroup: CPG_POD_GROUPS}}
        self.view = ClusterView(kinds, lambda _: None, namespaces=namespaces)
        self.server = Server()
        self.refused: list[str] = []
        connection = cast("Connection", self.server)
        self.sweeper = Sweeper(connection, self.view, namespaces, self._refuse)

    def _refuse(self, _: type, found: Rejected) -> None:
        self.refused.append(found.name)

    def there(self, groups: Sequence[Group], path: str = "/apis/scheduling.cpg.dev/v1alpha3/podgroups") -> None:
        """Have the server hold these groups."""
        self.server.items[path] = [to_manifest(group) for group in groups]

    def names(self) -> set[str]:
        """Return what the view knows."""
        return {one.metadata.key for one in self.view.known(CRD, PodGroup).values()}


def group(name: str, version: str = "1", *, uid: str = "", namespace: str = "default") -> PodGroup:
    """Return a state of a group."""
    meta = replace(metadata(name, namespace=namespace), resource_version=version)
    return pod_group(name, meta=replace(meta, uid=uid) if uid else meta)


@pytest.fixture
def rig() -> Rig:
    """Return a rig for all namespaces."""
    return Rig()


async def test_the_first_sweep_fills_the_view_and_the_second_finds_nothing_wrong(rig: Rig) -> None:
    """What is known is what is there."""
    rig.there([group("a"), group("b")])
    assert await rig.sweeper.sweep() == 2
    assert rig.names() == {"default/a", "default/b"}
    assert await rig.sweeper.sweep() == 0


async def test_what_went_unheard_is_found(rig: Rig) -> None:
    """Deleted, changed, come, and made anew under the same name."""
    for known in (group("gone"), group("old"), group("again", uid="first")):
        rig.view.put(CRD, known)
    rig.there([group("old", "2"), group("new"), group("again", "3", uid="second")])
    assert await rig.sweeper.sweep() == 4
    assert rig.names() == {"default/old", "default/new", "default/again"}
    found = {one.metadata.name: one.metadata for one in rig.view.known(CRD, PodGroup).values()}
    assert (found["old"].resource_version, found["again"].uid) == ("2", "second")


async def test_a_newer_state_in_view_stands(rig: Rig) -> None:
    """A list may be older than what Kopf has told meanwhile."""
    rig.view.put(CRD, group("a", "5"))
    rig.there([group("a", "4")])
    assert await rig.sweeper.sweep() == 0


async def test_what_goes_while_a_list_is_under_way_stays_gone(rig: Rig) -> None:
    """The list may be older than its end, which Kopf does not tell twice; so with one that was never heard of."""
    known, unknown, again = group("known"), group("unknown"), group("again", uid="first")
    rig.view.put(CRD, known)
    rig.view.put(CRD, again)
    rig.there([known, unknown, again, group("there")])

    def gone() -> None:
        rig.view.drop(CRD, known)
        rig.view.drop(CRD, unknown)
        rig.view.put(CRD, group("again", uid="second"))

    rig.server.meanwhile = gone
    assert await rig.sweeper.sweep() == 1
    assert rig.names() == {"default/again", "default/there"}
    assert "second" in rig.view.known(CRD, PodGroup)
    rig.server.meanwhile = lambda: None
    rig.there([group("again", uid="second")])
    assert await rig.sweeper.sweep() == 1
    assert rig.names() == {"default/again"}


async def test_others_have_their_turn_while_a_long_list_is_gone_through(rig: Rig) -> None:
    """Before it is at its end, both of what is there and of what is there no more; what goes meanwhile stays gone."""
    many = [group(f"g{number:02}") for number in range(40)]
    rig.there(many)
    seen: list[int] = []

    async def others() -> None:
        while True:
            await asyncio.sleep(0)
            seen.append(len(rig.names()))
            rig.view.drop(CRD, many[-1])

    task = asyncio.create_task(others())
    assert await rig.sweeper.sweep() == 39
    assert any(0 < count < 39 for count in seen)
    rig.there([])
    seen.clear()
    assert await rig.sweeper.sweep() == 39
    assert any(0 < count < 39 for count in seen)
    task.cancel()


async def test_what_does_not_fit_is_told_and_not_there(rig: Rig) -> None:
    """Even if an earlier state of it did fit."""
    rig.view.put(CRD, group("bad"))
    bad = to_manifest(group("bad", "2"))
    bad["spec"] = 7
    rig.server.items["/apis/scheduling.cpg.dev/v1alpha3/podgroups"] = [bad]
    assert await rig.sweeper.sweep() == 1
    assert (rig.refused, rig.names()) == (["default/bad"], set())


async def test_only_the_chosen_namespaces_are_looked_at() -> None:
    """Each by a list of its own, which says nothing of the others."""
    rig = Rig("x", "y")
    rig.there([group("a", namespace="x")], "/apis/scheduling.cpg.dev/v1alpha3/namespaces/x/podgroups")
    rig.there([group("b", namespace="y")], "/apis/scheduling.cpg.dev/v1alpha3/namespaces/y/podgroups")
    await rig.sweeper.sweep()
    assert rig.names() == {"x/a", "y/b"}
    assert all("/namespaces/" in path for path in rig.server.asked)
    assert await rig.sweeper.sweep() == 0


async def test_a_namespace_that_may_not_be_read_hides_no_other() -> None:
    """It has gone, or the rights in it have; what is known of it stands."""
    rig = Rig("x", "y")
    paths = {name: f"/apis/scheduling.cpg.dev/v1alpha3/namespaces/{name}/podgroups" for name in "xy"}
    rig.there([group("a", namespace="x")], paths["x"])
    await rig.sweeper.sweep()
    rig.server.refused = {paths["x"]: 403}
    rig.there([group("b", namespace="y")], paths["y"])
    assert await rig.sweeper.sweep() == 1
    assert rig.names() == {"x/a", "y/b"}


async def test_where_no_namespace_may_be_read_that_is_trouble() -> None:
    """As is anything else that keeps one from being listed, once the others have been."""
    rig = Rig("x", "y")
    paths = {name: f"/apis/scheduling.cpg.dev/v1alpha3/namespaces/{name}/podgroups" for name in "xy"}
    rig.server.refused = dict.fromkeys(paths.values(), 403)
    with pytest.raises(ApiError, match="403"):
        await rig.sweeper.sweep()
    rig.server.refused = {paths["x"]: 500}
    rig.there([group("b", namespace="y")], paths["y"])
    with pytest.raises(ApiError, match="500"):
        await rig.sweeper.sweep()
    assert rig.names() == {"y/b"}


async def test_a_namespace_is_read_once_its_pods_and_groups_are() -> None:
    """Whatever it is that comes last."""
    rig = Rig("x", "y")
    rig.view.read("x", Pod)
    rig.server.refused = {"/apis/scheduling.cpg.dev/v1alpha3/namespaces/x/podgroups": 403}
    await rig.sweeper.sweep()
    assert rig.view.is_unread("x")
    rig.server.refused.clear()
    await rig.sweeper.sweep()
    assert not rig.view.is_unread("x")
    assert rig.view.is_unread("y")
