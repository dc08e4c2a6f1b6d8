"""How news get into the view, and what is done where something may not be seen."""

import asyncio
import threading
from typing import Any, cast

import pytest

from cpg_api.manifests import to_manifest
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError
from cpg_client.flavours import CRD, KINDS
from cpg_client.stores import Synced
from cpg_client.timing import Timing
from cpg_engine.testing.builders import metadata, pod_group
from cpg_operator.embedding import KopfEndedError
from cpg_operator.metrics import Facts, Metrics
from cpg_operator.reconcile import SLICE
from cpg_operator.sources import events as module
from cpg_operator.sources.events import LONGEST_RESTART, STEADY, EventSources
from cpg_operator.view.cluster_view import ClusterView


class Server:
    """Answers lists, or refuses them."""

    endpoint = Endpoint(server="http://localhost")

    def __init__(self, **refused: int) -> None:
        """Refuse some kinds, by plural, with a status; time passes only by waiting."""
        self._refused = refused
        self.now = 0.0
        self.waits: list[float] = []
        self.timing = Timing(sleep=self._sleep, clock=lambda: self.now)

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    async def get(self, path: str, *_: object) -> bytes:
        """Answer."""
        status = self._refused.get(path.rpartition("/")[2])
        if status is not None:
            raise ApiError(status, "Reason", "message", request="GET")
        return b"{}"


class Over(Exception):  # noqa: N818  # it is the end of a test and not an error
    """Kopf is not run any more."""


class Rig:
    """Ears over an empty view."""

    def __init__(self, *namespaces: str, **refused: int) -> None:
        """Listen to these namespaces, or all."""
        self.view = ClusterView(KINDS, lambda _: None, namespaces=namespaces)
        self.gone: list[str] = []
        self.metrics = Metrics()
        self.server = Server(**refused)
        self.hearing = EventSources(
            cast("Connection", self.server),
            self.view,
            namespaces=namespaces,
            gone=self.gone.append,
            metrics=self.metrics,
        )

    def page(self) -> str:
        """Return the page of metrics."""
        return self.metrics.page(Facts(states=(), queued=0, unwritten=0, age=0.0)).decode()


def plain(name: str, **more: Any) -> dict[str, Any]:  # as JSON is
    """Return a group as the API server sends it."""
    return {**to_manifest(pod_group(name, meta=metadata(name))), **more}


async def hear(rig: Rig, monkeypatch: pytest.MonkeyPatch, *events: tuple[str | None, Any]) -> None:
    """Have Kopf hear this in its thread."""

    def hear(take: Any) -> None:  # noqa: ANN401  # Kopf's end of it
        for event, found in events:
            take(CRD, PodGroup, event, found)

    async def run(registry: Any, *_: object) -> None:  # noqa: ANN401  # what stands in for Kopf's
        thread = threading.Thread(target=hear, args=(registry,))
        thread.start()
        await asyncio.to_thread(thread.join)
        raise Over

    monkeypatch.setattr(module, "registry_of", lambda _endpoint, _kinds, **given: given["take"])
    monkeypatch.setattr(module, "run_kopf", run)
    with pytest.raises(Over):
        await rig.hearing.kopf()
    await asyncio.sleep(0)


async def test_what_kopf_hears_in_its_thread_gets_into_the_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed, added, deleted; what does not fit is refused, and a null is a field that is not there."""
    rig = Rig()
    added, unfitting = plain("b", status=None), plain("bad", spec=7)
    events = ((None, plain("a")), ("ADDED", added), ("MODIFIED", unfitting), ("DELETED", plain("a")))
    await hear(rig, monkeypatch, *events)
    assert [one.metadata.name for one in rig.view.known(CRD, PodGroup).values()] == ["b"]
    assert rig.gone == [metadata("a").uid]
    assert 'cpg_operator_refused_objects_total{kind="PodGroup"} 1.0' in rig.page()


async def test_a_mistake_about_one_thing_heard_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what comes with it nor what comes later; it is counted."""
    rig = Rig()
    put = rig.view.put

    def broken(flavour: str, found: PodGroup) -> bool:
        if found.metadata.name == "bad":
            raise ValueError("a mistake of ours")
        return put(flavour, found)

    monkeypatch.setattr(rig.view, "put", broken)
    await hear(rig, monkeypatch, ("ADDED", plain("a")), ("ADDED", plain("bad")), ("ADDED", plain("b")))
    await hear(rig, monkeypatch, ("ADDED", plain("c")))
    assert {one.metadata.name for one in rig.view.known(CRD, PodGroup).values()} == {"a", "b", "c"}
    assert "cpg_operator_mistakes_total 1.0" in rig.page()


async def test_others_have_their_turn_while_much_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time that it has taken long enough; nothing is lost, and the order stays."""
    rig, turns, taken = Rig(), [0], list[tuple[str, int]]()

    def slow(_: str, found: PodGroup) -> bool:
        rig.server.now += SLICE / 2
        taken.append((found.metadata.name, turns[0]))
        return True

    async def others() -> None:
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(rig.view, "put", slow)
    task = asyncio.create_task(others())
    await hear(rig, monkeypatch, *(("ADDED", plain(name)) for name in "abcdef"))
    for _ in range(9):
        await asyncio.sleep(0)
    task.cancel()
    assert [name for name, _ in taken] == [*"abcdef"]
    assert len({turn for _, turn in taken}) == 3


async def test_kopf_is_started_again_whatever_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After waits that double, from the first again where it has run for a while; each is counted."""
    rig, runs = Rig(), iter([0.0] * 8 + [STEADY, 0.0])

    async def run(*_: object) -> None:
        if (lasted := next(runs, None)) is None:
            raise Over
        rig.server.now += lasted
        raise KopfEndedError("broken")

    monkeypatch.setattr(module, "run_kopf", run)
    with pytest.raises(Over):
        await rig.hearing.kopf()
    assert rig.server.waits == [1, 2, 4, 8, 16, *[LONGEST_RESTART] * 3, 1, 2]
    assert "cpg_operator_kopf_restarts_total 10.0" in rig.page()


def test_kopfs_watches_are_known() -> None:
    """One of every kind of every flavour, in each namespace that is watched."""
    paths = Rig("x", "y").hearing.session_health.silence(0.0)
    assert len(paths) == 2 * sum(map(len, KINDS.values()))
    assert "/apis/scheduling.cpg.dev/v1alpha3/namespaces/x/podgroups" in paths
    assert "/apis/scheduling.k8s.io/v1beta1/workloads" in Rig().hearing.session_health.silence(0.0)


async def test_everything_is_reflected_where_everything_may_be_seen() -> None:
    """Pods everywhere, nodes, priority classes."""
    rig = Rig()
    paths = [one.source.path for one in await rig.hearing.reflectors()]
    assert paths == ["/api/v1/pods", "/api/v1/nodes", "/apis/scheduling.k8s.io/v1/priorityclasses"]
    assert rig.view.knows_classes


async def test_who_may_see_some_namespaces_only_does_without_the_rest() -> None:
    """Pods namespace by namespace; no domains, and no judging by classes that may not be read."""
    rig = Rig("x", "y", nodes=403, priorityclasses=403)
    paths = [one.source.path for one in await rig.hearing.reflectors()]
    assert paths == ["/api/v1/namespaces/x/pods", "/api/v1/namespaces/y/pods"]
    assert not rig.view.knows_classes


async def test_a_namespace_has_been_read_when_its_pods_have() -> None:
    """And all else: by the sweep."""
    rig = Rig("x")
    for flavour, kinds in KINDS.items():
        for kind in kinds:
            rig.view.read("x", (flavour, kind))
    pods = (await rig.hearing.reflectors())[0]
    assert rig.view.is_unread("x")
    pods._on_change(Synced())
    assert not rig.view.is_unread("x")


async def test_a_server_in_trouble_is_no_refusal() -> None:
    """Whoever asked asks again."""
    with pytest.raises(ApiError):
        await Rig(nodes=500).hearing.reflectors()
