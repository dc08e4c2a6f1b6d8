"""Standing by and leading: what is known before, and what begins with the lease."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_client.connection import Connection
from cpg_client.process import ProcessContext
from cpg_client.stores import Added, Deleted
from cpg_client.watch_health import CollectionHealth
from cpg_engine.testing.builders import node, pod
from cpg_scheduler import app, reflectors
from cpg_scheduler.reflectors import ReflectedCluster
from cpg_scheduler.settings import SchedulerSettings
from cpg_scheduler.testing.fake_connection import FakeConnection


class Watch:
    """A reflector that has read everything, and may be in trouble since."""

    synced = True

    def __init__(self) -> None:
        self.source = SimpleNamespace(path="/all")
        self.health = CollectionHealth("/all", last_heard=0.0)

    async def run(self) -> None:
        """Bring nothing."""
        await asyncio.Event().wait()


class House:
    """A scheduler without an API server: what its reflectors would bring is told by hand."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.api = FakeConnection()
        self.shell = ProcessContext(settings=SchedulerSettings(), log=structlog.get_logger(), identity="me")
        self.cluster: ReflectedCluster | None = None
        self.watch = Watch()
        patch.setattr(app, "discover", self._discover)
        patch.setattr(app, "reflectors", self._reflectors)
        self.block = app._standing_by(cast("Connection", self.api), self.shell)

    async def learnt(self) -> None:
        """Wait until the reflectors run."""
        while self.shell.readiness.informers is None:  # noqa: ASYNC110  # another task's doing
            await asyncio.sleep(0)

    async def _discover(self, *_: object) -> dict[str, dict[type, Any]]:
        return {}

    def _reflectors(self, _: object, cluster: ReflectedCluster, __: object) -> list[Any]:
        self.cluster = cluster
        return [self.watch]

    def put(self, *things: Pod | Node) -> None:
        """Let a watch bring something new."""
        assert self.cluster is not None
        for thing in things:
            take = self.cluster.cache.on_pod if isinstance(thing, Pod) else self.cluster.cache.on_node
            change = cast("Any", Added(thing.metadata.key, thing))
            take(change)
            self.cluster.on_change(change, type(thing))

    async def sent(self) -> list[str]:
        """Return where something was written to, after a while."""
        await asyncio.sleep(0.1)
        return sorted(write.path for write in self.api.writes if "events" not in write.path)


async def test_who_stands_by_knows_all_and_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the lease it decides about what it knew before, and about what comes then; it ends when it is told to."""
    house = House(monkeypatch)
    async with house.block as work:
        await house.learnt()
        house.put(node("n1", cpu=2), pod("a", cpu=1), pod("full", cpu=9, node_name="n1"))
        house.put(node("n2", cpu=4), pod("b", cpu=1))
        assert await house.sent() == []
        leading = asyncio.create_task(work())
        bound = [f"/api/v1/namespaces/default/pods/{name}/binding" for name in "abc"]
        assert await house.sent() == bound[:2]
        house.put(pod("c", cpu=1))
        assert await house.sent() == bound
        house.shell.stopping.set()
        async with asyncio.timeout(5):
            await leading
    told = [write.body for write in house.api.writes if "/events" in write.path]
    assert ("n1", "OverCommitted") in [(one["regarding"]["name"], one["reason"]) for one in told]


async def test_news_that_nobody_reads_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who stands by for weeks remembers what is there, and not all that has ever happened."""
    monkeypatch.setattr(reflectors, "MAX_EVENTS_ON_STANDBY", 10)
    house = House(monkeypatch)
    async with house.block as work:
        await house.learnt()
        assert house.cluster is not None
        state = house.cluster.cache
        house.put(node("n1", cpu=2))
        for number in range(100):
            gone = pod(f"p{number}", cpu=1, node_name="n1")
            house.put(gone)
            change = Deleted(gone.metadata.key, gone)
            state.on_pod(change)
            house.cluster.on_change(change, Pod)
        assert len(state.events.pending.removed_pods) <= 10
        house.put(pod("a", cpu=1))
        state.take_events()
        leading = asyncio.create_task(work())
        assert await house.sent() == ["/api/v1/namespaces/default/pods/a/binding"]
        house.shell.stopping.set()
        await leading


async def test_who_stood_by_through_an_outage_catches_up_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it knows is from before; it decides a moment after its watches are well again."""
    monkeypatch.setattr(app, "SECONDS_TO_CATCH_UP", 0.2)
    house = House(monkeypatch)
    house.watch.health.failing_since = 0.0
    async with house.block as work:
        await house.learnt()
        house.put(node("n1", cpu=1), pod("a", cpu=1))
        leading = asyncio.create_task(work())
        assert await house.sent() == []
        house.watch.health.failing_since = None
        assert await house.sent() == []
        house.put(pod("before", cpu=1, node_name="n1"), node("n2", cpu=1))
        async with asyncio.timeout(5):
            while not await house.sent():
                pass
        assert [write.body["target"]["name"] for write in house.api.writes if "binding" in write.path] == ["n2"]
        house.shell.stopping.set()
        await leading


async def test_the_end_may_come_before_anything_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is done then, lease or not."""
    house = House(monkeypatch)
    house.shell.stopping.set()

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(app, "discover", never)
    async with house.block as work:
        await work()
    assert (house.cluster, house.api.writes) == (None, [])
