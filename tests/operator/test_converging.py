"""Looks, writes, pods, strangers and the watch in any order: in the end the API says what is so."""

import asyncio
import copy
from collections import deque
from collections.abc import Iterable
from typing import Any, Literal, TypeAlias, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cpg_api.manifests import to_manifest
from cpg_api.scheduling.forest import Group, key_of
from cpg_client.connection import APPLY_YAML, Connection
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.flavours import CRD, KINDS
from cpg_client.stores import Added, Deleted
from cpg_client.timing import Timing
from cpg_engine.testing.builders import composite, node, pod_group
from cpg_operator.context import build_context
from cpg_operator.metrics import Metrics
from cpg_operator.reconcile import Reconciler
from cpg_operator.steps import STEPS
from cpg_operator.steps.health import report
from cpg_operator.testing.fixtures import STAMP, members
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import TreeKey
from cpg_operator.writing.writer import Writer

Plain: TypeAlias = dict[str, Any]
Fate: TypeAlias = Literal["works", "fails", "works unheard"]
LONG = 300
"""Rounds after which everything must have come to rest."""
LIES: tuple[Plain, ...] = (
    {"domain": {"key": "rack", "value": "wrong"}},
    {"pods": {"desired": 7, "scheduled": 7, "running": 7}},
    {"conditions": [{"type": "Partial", "status": "True", "reason": "Lie", "lastTransitionTime": STAMP}]},
    {"conditions": [{"type": "Healthy", "status": "True", "reason": "Lie", "lastTransitionTime": STAMP}]},
)
GROUPS = ("root", "a", "b")


class Api:
    """Groups as an API server keeps them; when a write has which fate, and when the watch tells, is said by hand."""

    def __init__(self, groups: Iterable[Group]) -> None:
        """Hold these groups, of which the watch has told nothing yet."""
        self.now = 0.0
        self.timing = Timing(clock=lambda: self.now, wall=lambda: self.now)
        self.groups: dict[str, Plain] = {}
        self.news: deque[tuple[type, Plain]] = deque()
        self.waiting: deque[asyncio.Future[Fate]] = deque()
        self._owned: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self._version = 0
        for group in groups:
            self._take(group.metadata.name, to_manifest(group))

    async def post(self, *_: object) -> bytes:
        """Take an event."""
        return b"{}"

    async def patch(self, path: str, body: Plain, kind: str, *, params: Plain | None = None) -> bytes:
        """Take a patch once it has been said what becomes of it."""
        fate: asyncio.Future[Fate] = asyncio.get_running_loop().create_future()
        self.waiting.append(fate)
        became = await fate
        if became == "fails":
            raise ConnectionFailedError("server", "PATCH", "lost")
        name = path.removesuffix("/status").rpartition("/")[2]
        body = msgspec.json.decode(msgspec.json.encode(body))
        if body["metadata"].pop("resourceVersion", None) not in {
            None,
            self.groups[name]["metadata"]["resourceVersion"],
        }:
            raise ApiError(409, "Conflict", "changed since", request="PATCH")
        if kind == APPLY_YAML:
            self.apply(name, body["status"], (params or {})["fieldManager"])
        else:
            self._take(name, merged(self.groups[name], body))
        if became == "works unheard":
            raise ConnectionFailedError("server", "PATCH", "cut off")
        return msgspec.json.encode(self.groups[name])

    def apply(self, name: str, status: Plain, manager: str) -> None:
        """Apply a status by force; what the manager had and does not send goes, unless somebody else has it too."""
        fields = dict(spread(status))
        now = dict(spread(self.groups[name].get("status", {})))
        owned = {other: mine for (group, other), mine in self._owned.items() if group == name}
        for field in owned.get(manager, set()) - fields.keys():
            if not any(field in mine for other, mine in owned.items() if other != manager):
                now.pop(field, None)
        for other, mine in owned.items():
            if other != manager:
                mine -= {field for field in mine & fields.keys() if now.get(field) != fields[field]}
        self._owned[name, manager] = set(fields)
        self._take(name, {**self.groups[name], "status": gathered(now | fields)})

    def _take(self, name: str, plain: Plain) -> None:
        """Keep a state of a group, and have the watch tell it; one that is as before is none."""
        before = self.groups.get(name)
        if before is not None and ordered(before) == ordered(plain):
            return
        self._version += 1
        plain = copy.deepcopy(plain)
        plain["metadata"]["resourceVersion"] = str(self._version)
        self.groups[name] = plain
        self.news.append(found(plain))


def found(plain: Plain) -> tuple[type, Plain]:
    """Return an object with its kind."""
    return next(kind for kind in KINDS[CRD] if kind.__name__ == plain["kind"]), plain


def spread(status: Plain) -> Iterable[tuple[tuple[str, str], Any]]:
    """Yield what managers may own, by name: conditions one by one."""
    for name, value in status.items():
        if name != "conditions":
            yield (name, ""), value
        else:
            yield from (((name, one["type"]), one) for one in value)


def ordered(plain: Plain) -> Plain:
    """Return an object in which the order of conditions says nothing."""
    return plain | {"status": dict(spread(plain.get("status", {})))}


def gathered(fields: dict[tuple[str, str], Any]) -> Plain:
    """Make a status of its fields."""
    conditions = [value for (name, _), value in fields.items() if name == "conditions"]
    return {name: value for (name, _), value in fields.items() if name != "conditions"} | {"conditions": conditions}


def merged(plain: Plain, body: Plain) -> Plain:
    """Return an object after a merge patch."""
    made = dict(plain)
    for name, value in body.items():
        if value is None:
            made.pop(name, None)
        else:
            made[name] = merged(made.get(name, {}), value) if isinstance(value, dict) else value
    return made


class Rig:
    """The operator's core over an API server: what happens in which order is said by hand."""

    def __init__(self) -> None:
        """Begin with a tree that nobody knows: a pod of the first gang makes it whole, one of the second half."""
        leaves = [pod_group(name, gang=gang, parent="root", key="rack") for name, gang in (("a", 1), ("b", 2))]
        self.api = Api([composite("root", gang=1, key="rack"), *leaves])
        self.dirty: WorkQueue[TreeKey] = WorkQueue(self.api.timing.clock, quiet=0.25, longest=1.0)
        self.view = self._view()
        metrics, connection = Metrics(), cast("Connection", self.api)
        view = self.view
        self.door = Writer(
            connection, self.dirty, instance="test", metrics=metrics, answered=view.answered, missed=view.missed
        )
        self.reconciler = Reconciler(
            self.view,
            self.dirty,
            self.door,
            steps=STEPS,
            metrics=metrics,
            partial_after=600.0,
            timing=self.api.timing,
        )

    def _view(self) -> ClusterView:
        view = ClusterView(KINDS, self.dirty.mark, self.dirty.mark_paced)
        for number, rack in (("1", "r1"), ("2", "r2")):
            view.on_node(Added(f"n{number}", node(f"n{number}", labels={"rack": rack})))
        return view

    def pod(self, group: str, place: str) -> None:
        """Have the one pod of a group where it is said to be, or nowhere."""
        (before,) = members(group, 1)
        self.view.on_pod(Deleted(before.metadata.key, before))
        if place:
            (now,) = members(group, 1, node=place)
            self.view.on_pod(Added(now.metadata.key, now))

    def hear(self) -> None:
        """Have the watch tell one thing more."""
        if self.api.news:
            kind, plain = self.api.news.popleft()
            self.view.put(CRD, msgspec.convert(plain, kind))

    async def look(self, seconds: float) -> None:
        """Let time go by, and look at what is due."""
        self.api.now += seconds
        while (key := self.dirty.pop()) is not None:
            self.reconciler.look(key)
        await settle()

    async def land(self, fate: Fate) -> None:
        """Say what becomes of the write that has been under way the longest."""
        if self.api.waiting:
            self.api.waiting.popleft().set_result(fate)
        await settle()

    def lie(self, name: str, lie: Plain) -> None:
        """Have a stranger write a status."""
        self.api.apply(name, lie, "stranger")

    async def rest(self) -> None:
        """Let everything come to its end."""
        for _ in range(LONG):
            wait = self.dirty.wait()
            if wait is None and not self.api.waiting and not self.api.news:
                return
            await self.land("works")
            self.hear()
            await self.look(wait or 0.0)
        raise AssertionError("it does not come to rest")

    def unsaid(self) -> list[str]:
        """Return whose status in the API is not what who comes afresh would have it be."""
        fresh = self._view()
        for kind, plain in map(found, self.api.groups.values()):
            fresh.put(CRD, msgspec.convert(plain, kind))
        for name in "ab":
            for one in self.view.members(CRD, key_of(pod_group(name))):
                fresh.on_pod(Added(one.metadata.key, one))
        key = TreeKey(CRD, key_of(composite("root")))
        scene = build_context(fresh, key, now=self.api.now, stamp=STAMP, partial_after=600.0)
        return [write.target.name for write in report(scene).writes]


async def settle() -> None:
    """Let the door go on until it waits for the wire."""
    for _ in range(8):
        await asyncio.sleep(0)


pods = st.tuples(st.just("pod"), st.sampled_from("ab"), st.sampled_from(["", "n1", "n2"]))
looks = st.tuples(st.just("look"), st.sampled_from([0.3, 2.0]))
fates = st.tuples(st.just("land"), st.sampled_from(["works", "works", "fails", "works unheard"]))
lies = st.tuples(st.just("lie"), st.sampled_from(GROUPS), st.sampled_from(LIES))
stories = st.lists(st.one_of(pods, pods, looks, looks, fates, lies, st.just(("hear",))), min_size=4, max_size=30)


async def played(story: list[tuple[Any, ...]]) -> list[str]:
    """Play a story to its end; return what the API does not say as it is."""
    rig = Rig()
    working = asyncio.create_task(rig.door.run())
    while rig.api.news:
        rig.hear()
    await rig.rest()
    for deed, *more in story:
        outcome = getattr(rig, deed)(*more)
        if outcome is not None:
            await outcome
    await rig.rest()
    working.cancel()
    await asyncio.wait({working})
    return rig.unsaid()


@settings(deadline=None, max_examples=200)
@given(stories)
def test_in_the_end_the_api_says_what_is_so(story: list[tuple[Any, ...]]) -> None:
    """However looks, writes and their fates, pods that come and go, strangers and a late watch interleave."""
    assert asyncio.run(played(story)) == []


def test_a_pod_that_goes_while_its_coming_is_being_written_is_not_told_of_for_ever() -> None:
    """The look between finds the old status right, and the write that lands after it makes it wrong."""
    story = [("pod", "a", "n1"), ("look", 2.0), ("pod", "a", ""), ("look", 2.0)]
    assert asyncio.run(played(story)) == []
