"""Standby and leadership: what is cached before, and what starts with the lease."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from msgspec import convert, to_builtins
from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import key_of
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_client.connection import Connection
from cpg_client.flavours import CRD
from cpg_client.process import ProcessContext
from cpg_client.reflector import ReflectorCounts
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS
from cpg_client.stores import Added, Deleted, Modified
from cpg_client.versions import VersionsWentBackError
from cpg_client.watch_health import CollectionHealth
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler import app, reflectors
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption import corrections
from cpg_scheduler.reflectors import ReflectedCluster, ServedKinds
from cpg_scheduler.settings import SchedulerSettings
from cpg_scheduler.status.conditions import StatusWriter
from cpg_scheduler.testing.fake_connection import FakeConnection, SentRequest


def group_status(reason: str) -> PodGroupStatus:
    """Return the status of a group that waits for some reason."""
    return PodGroupStatus(conditions=(Condition(type="PodGroupInitiallyScheduled", status="False", reason=reason),))


class FakeReflector:
    """A reflector that has listed everything; the test says what its watch shows since."""

    synced = True
    listed_since = None
    version = "7"

    def __init__(self) -> None:
        self.source = SimpleNamespace(path="/all", params={})
        self.health = CollectionHealth("/all", last_heard=0.0)
        self.counts = ReflectorCounts()
        self.objects = dict[str, object]()
        self.relists = 0

    def relist(self) -> None:
        """Count the requests for a list."""
        self.relists += 1

    async def run(self) -> None:
        """Report no change."""
        await asyncio.Event().wait()


class AppFixture:
    """A scheduler over a fake connection; the test reports the changes of the cluster."""

    def __init__(self, patch: pytest.MonkeyPatch, *, leader_elect: bool = True) -> None:
        self.api = FakeConnection()
        self.api.objects["/all"] = {"metadata": {"resourceVersion": "7"}, "items": []}
        settings = SchedulerSettings(debug_port=0, leader_elect=leader_elect)
        self.shell = ProcessContext(settings=settings, log=structlog.get_logger(), identity="me")
        self.cluster: ReflectedCluster | None = None
        self.watch = FakeReflector()
        patch.setattr(app, "discover", self._discover)
        patch.setattr(app, "reflectors", self._reflectors)
        self.block = app._standing_by(cast("Connection", self.api), self.shell)

    async def reflected(self) -> None:
        """Wait until the reflectors run."""
        while self.shell.readiness.informers is None:  # noqa: ASYNC110  # another task's doing
            await asyncio.sleep(0)

    async def _discover(self, *_: object) -> ServedKinds:
        return ServedKinds({CRD: {PodGroup: CPG_POD_GROUPS, CompositePodGroup: CPG_COMPOSITE_POD_GROUPS}}, {})

    def _reflectors(self, _: object, cluster: ReflectedCluster, __: object) -> list[Any]:
        self.cluster = cluster
        return [self.watch]

    def put(self, *targets: Pod | Node) -> None:
        """Let the watch report new objects."""
        assert self.cluster is not None
        for target in targets:
            take = self.cluster.cache.on_pod if isinstance(target, Pod) else self.cluster.cache.on_node
            change = cast("Any", Added(target.metadata.key, target))
            take(change)
            self.cluster.on_change(change, type(target))

    def condition(self, old: Pod, condition: PodCondition) -> Pod:
        """Let the watch report a condition of a pod; return the pod with it."""
        assert self.cluster is not None
        new = replace(old, status=replace(old.status, conditions=(condition,)))
        change = Modified(old.metadata.key, old, new)
        self.cluster.cache.on_pod(change)
        self.cluster.on_change(change, Pod)
        return new

    def patches(self) -> list[SentRequest]:
        """Return the changes of statuses so far."""
        return [write for write in self.api.writes if write.method == "PATCH" and write.path.endswith("/status")]

    async def sent(self, at_least: int = 0) -> list[str]:
        """Return the paths of the writes after a while, and not before so many of them; without events."""
        async with asyncio.timeout(20):
            while True:
                await asyncio.sleep(0.1)
                found = sorted(write.path for write in self.api.writes if "events" not in write.path)
                if len(found) >= at_least:
                    return found


async def test_a_standby_fills_its_cache_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As leader it schedules the pods of before and new ones, and ends when it is told to."""
    fixture = AppFixture(monkeypatch)
    async with fixture.block as work:
        await fixture.reflected()
        fixture.put(node("n1", cpu=2), pod("a", cpu=1), pod("full", cpu=9, node_name="n1"))
        fixture.put(node("n2", cpu=4), pod("b", cpu=1))
        assert await fixture.sent() == []
        leading = asyncio.create_task(work())
        bound = [f"/api/v1/namespaces/default/pods/{name}/binding" for name in "abc"]
        assert await fixture.sent(2) == bound[:2]
        fixture.put(pod("c", cpu=1))
        assert await fixture.sent(len(bound)) == bound
        fixture.shell.stopping.set()
        async with asyncio.timeout(5):
            await leading
    events = [write.body for write in fixture.api.writes if "/events" in write.path]
    assert ("n1", "OverCommitted") in [(one["regarding"]["name"], one["reason"]) for one in events]


async def test_a_standby_does_not_pile_up_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its memory does not grow for weeks; as leader it begins with all that is cached."""
    monkeypatch.setattr(reflectors, "MAX_EVENTS_ON_STANDBY", 10)
    fixture = AppFixture(monkeypatch)
    async with fixture.block as work:
        await fixture.reflected()
        assert fixture.cluster is not None
        cache = fixture.cluster.cache
        fixture.put(node("n1", cpu=2))
        for number in range(100):
            gone = pod(f"p{number}", cpu=1, node_name="n1")
            fixture.put(gone)
            change = Deleted(gone.metadata.key, gone)
            cache.on_pod(change)
            fixture.cluster.on_change(change, Pod)
        assert len(cache.events.pending.removed_pods) <= 10
        fixture.put(pod("a", cpu=1))
        cache.take_events()
        leading = asyncio.create_task(work())
        assert await fixture.sent(1) == ["/api/v1/namespaces/default/pods/a/binding"]
        fixture.shell.stopping.set()
        await leading


async def test_without_leader_election_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no other leader, so the lists of the start are fresh, and further ones only cost time."""
    fixture = AppFixture(monkeypatch, leader_elect=False)
    async with fixture.block as work:
        await fixture.reflected()
        fixture.put(node("n1", cpu=2), pod("a", cpu=1))
        fixture.api.objects["/all"] = {"metadata": {"resourceVersion": "9"}, "items": []}
        leading = asyncio.create_task(work())
        assert await fixture.sent(1) == ["/api/v1/namespaces/default/pods/a/binding"]
        assert fixture.watch.relists == 0
        fixture.shell.stopping.set()
        await leading


async def test_a_leader_waits_until_its_cache_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its watch has not shown what the previous leader did last. It lists anew, and schedules after that."""
    fixture = AppFixture(monkeypatch)
    fixture.watch.version = "5"
    async with fixture.block as work:
        await fixture.reflected()
        fixture.put(node("n1", cpu=1), pod("a", cpu=1))
        leading = asyncio.create_task(work())
        assert (await fixture.sent(), fixture.watch.relists) == ([], 1)
        fixture.put(pod("before", cpu=1, node_name="n1"), node("n2", cpu=1))
        fixture.watch.version = "8"
        async with asyncio.timeout(5):
            while not await fixture.sent():
                pass
        assert [write.body["target"]["name"] for write in fixture.api.writes if "binding" in write.path] == ["n2"]
        fixture.shell.stopping.set()
        await leading


async def test_a_leader_repeats_what_the_api_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch never shows that a nomination was cleared, so the write is repeated."""
    monkeypatch.setattr(app, "SECONDS_BETWEEN_CORRECTIONS", 0.02)
    monkeypatch.setattr(corrections, "SECONDS_OF_LATENESS", 0.02)
    fixture = AppFixture(monkeypatch)
    async with fixture.block as work:
        await fixture.reflected()
        lost = pod("lost", cpu=9)
        fixture.put(node("n1", cpu=1), replace(lost, status=replace(lost.status, nominated_node_name="n1")))
        leading = asyncio.create_task(work())
        async with asyncio.timeout(5):
            while sum(one.body["status"].get("nominatedNodeName", "") is None for one in fixture.patches()) < 3:
                await fixture.sent()
        fixture.shell.stopping.set()
        await leading


async def test_a_condition_is_written_again_after_a_late_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request of an earlier leader arrives after ours; nothing else happens that would lead to an attempt."""
    fixture = AppFixture(monkeypatch)
    async with fixture.block as work:
        await fixture.reflected()
        fixture.put(node("n1", cpu=1), pod("a", cpu=9))
        leading = asyncio.create_task(work())
        assert await fixture.sent(1) == ["/api/v1/namespaces/default/pods/a/status"]
        ours = convert(to_builtins(fixture.patches()[-1].body["status"]["conditions"][0]), PodCondition)
        shown = fixture.condition(pod("a", cpu=9), ours)
        fixture.condition(shown, replace(ours, reason="WaitingForGroup", message="waiting for more pods"))
        assert await fixture.sent(2) == ["/api/v1/namespaces/default/pods/a/status"] * 2
        assert fixture.patches()[-1].body["status"]["conditions"][0]["message"] == ours.message
        fixture.shell.stopping.set()
        await leading


@pytest.mark.parametrize("has_pending_pods", [False, True])
@pytest.mark.parametrize("is_overwritten", [False, True])
async def test_a_tree_is_resynced_after_a_late_condition_of_a_group(
    monkeypatch: pytest.MonkeyPatch,
    has_pending_pods: bool,  # noqa: FBT001 - a parameter
    is_overwritten: bool,  # noqa: FBT001 - a parameter
) -> None:
    """One with pending pods is attempted if it was not ours. The spec is as before, which alone activates nothing."""
    fixture = AppFixture(monkeypatch)
    monkeypatch.setattr(StatusWriter, "is_overwritten", lambda *_: is_overwritten)
    async with fixture.block as work:
        await fixture.reflected()
        assert fixture.cluster is not None
        cache, root, leaf = fixture.cluster.cache, composite("root"), pod_group("leaf", parent="root")
        for group in (root, leaf):
            cache.on_group(CRD)(Added(group.metadata.key, group))
        members = [pod("member", group="leaf", cpu=9)] if has_pending_pods else []
        fixture.put(node("n1", cpu=1), pod("a", cpu=9), *members)
        leading = asyncio.create_task(work())
        await fixture.sent(1 + has_pending_pods)
        late = replace(leaf, status=group_status("Unschedulable"))
        fixture.cluster.on_change(Modified(leaf.metadata.key, leaf, late), PodGroup)
        requeued = {UnitKey(CRD, key_of(root))} if is_overwritten or not has_pending_pods else set()
        assert cache.take_events().changed_units == requeued
        fixture.shell.stopping.set()
        await leading


async def test_a_process_ends_when_versions_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a standby: what it knows is of another history of the cluster."""
    fixture = AppFixture(monkeypatch)
    fixture.watch.version = "9"

    async def lead() -> None:
        async with fixture.block as work:
            await fixture.reflected()
            await work()

    with pytest.raises(ExceptionGroup) as caught:
        await lead()
    assert caught.group_contains(VersionsWentBackError, match="/all went back from 9 to 7")


async def test_a_process_can_end_before_the_api_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written then, lease or not."""
    fixture = AppFixture(monkeypatch)
    fixture.shell.stopping.set()

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(app, "discover", never)
    async with fixture.block as work:
        await work()
    assert (fixture.cluster, fixture.api.writes) == (None, [])
