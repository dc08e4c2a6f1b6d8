"""Reconciles, writes, pods, foreign writers and the watch in any order: in the end every status is right."""

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
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import APPLY_YAML, Connection
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.flavours import CRD, KINDS
from cpg_client.stores import Added, Deleted
from cpg_client.timing import Timing
from cpg_engine.testing.builders import composite, node, pod_group
from cpg_operator.context import build_context
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.reconcile import Reconciler, StepRunner
from cpg_operator.steps import STEPS
from cpg_operator.steps.health import report_health
from cpg_operator.testing.fixtures import TIMESTAMP, RecordingQueue, members
from cpg_operator.tree_states import TreeStates
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import TreeKey
from cpg_operator.writing.creations import RecentCreations
from cpg_operator.writing.expectations import Expectations
from cpg_operator.writing.retries import RetryState
from cpg_operator.writing.sender import Sender
from cpg_operator.writing.writer import Writer

Plain: TypeAlias = dict[str, Any]
WriteResult: TypeAlias = Literal["succeeds", "fails", "succeeds without answer"]
MAX_ROUNDS = 300
"""After these everything must have settled."""
FOREIGN_STATUSES: tuple[Plain, ...] = (
    {"domain": {"key": "rack", "value": "wrong"}},
    {"pods": {"desired": 7, "scheduled": 7, "running": 7}},
    {"conditions": [{"type": "Partial", "status": "True", "reason": "Foreign", "lastTransitionTime": TIMESTAMP}]},
    {"conditions": [{"type": "Healthy", "status": "True", "reason": "Foreign", "lastTransitionTime": TIMESTAMP}]},
)
GROUPS = ("root", "a", "b")


class Api:
    """Groups as an API server keeps them; the test decides the result of each write and when the watch reports it."""

    def __init__(self, groups: Iterable[Group]) -> None:
        """Hold these groups, which the watch has not reported yet."""
        self.now = 0.0
        self.timing = Timing(clock=lambda: self.now, wall=lambda: self.now)
        self.groups: dict[str, Plain] = {}
        self.events: deque[tuple[type, Plain]] = deque()
        self.waiting: deque[asyncio.Future[WriteResult]] = deque()
        self._owned: dict[tuple[str, str], set[tuple[str, str]]] = {}
        self._version = 0
        for group in groups:
            self._take(group.metadata.name, to_manifest(group))

    async def post(self, *_: object) -> bytes:
        """Accept an event."""
        return b"{}"

    async def patch(self, path: str, body: Plain, kind: str, *, params: Plain | None = None) -> bytes:
        """Accept a patch once the test has decided its result."""
        deciding: asyncio.Future[WriteResult] = asyncio.get_running_loop().create_future()
        self.waiting.append(deciding)
        result = await deciding
        if result == "fails":
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
        if result == "succeeds without answer":
            raise ConnectionFailedError("server", "PATCH", "cut off")
        return msgspec.json.encode(self.groups[name])

    def apply(self, name: str, status: Plain, manager: str) -> None:
        """Apply a status by force; fields that the manager owned and does not send are removed, unless shared."""
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
        """Keep a version of a group for the watch to report; an unchanged one is no version."""
        before = self.groups.get(name)
        if before is not None and ordered(before) == ordered(plain):
            return
        self._version += 1
        plain = copy.deepcopy(plain)
        plain["metadata"]["resourceVersion"] = str(self._version)
        self.groups[name] = plain
        self.events.append(found(plain))


def found(plain: Plain) -> tuple[type, Plain]:
    """Return an object with its kind."""
    return next(kind for kind in KINDS[CRD] if kind.__name__ == plain["kind"]), plain


def spread(status: Plain) -> Iterable[tuple[tuple[str, str], Any]]:
    """Yield the fields that managers may own, by name: conditions one by one."""
    for name, value in status.items():
        if name != "conditions":
            yield (name, ""), value
        else:
            yield from (((name, one["type"]), one) for one in value)


def ordered(plain: Plain) -> Plain:
    """Return an object in which the order of conditions does not matter."""
    return plain | {"status": dict(spread(plain.get("status", {})))}


def gathered(fields: dict[tuple[str, str], Any]) -> Plain:
    """Return a status with these fields."""
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
    """The operator's core over an API server: the test decides what happens in which order."""

    def __init__(self) -> None:
        """Start with an unknown tree: a pod of the first gang completes it, a pod of the second makes it partial."""
        leaves = [pod_group(name, gang=gang, parent="root", key="rack") for name, gang in (("a", 1), ("b", 2))]
        self.api = Api([composite("root", gang=1, key="rack"), *leaves])
        self.queue: WorkQueue[TreeKey] = WorkQueue(self.api.timing.clock, quiet=0.25, longest=1.0)
        self.view = self._view()
        metrics, connection, clock = OperatorMetrics(), cast("Connection", self.api), self.api.timing.clock
        retries = RetryState[TreeKey]()
        self.writer = Writer(
            Sender(connection, instance="test"),
            view=self.view,
            queue=self.queue,
            expectations=Expectations(clock),
            creations=RecentCreations(clock),
            retries=retries,
            metrics=metrics,
        )
        steps = StepRunner(
            self.view,
            steps=STEPS,
            states=TreeStates(),
            timing=self.api.timing,
            partial_after=600.0,
            scheduler_names=frozenset({SCHEDULER_NAME}),
        )
        self.reconciler = Reconciler(
            self.view,
            queue=self.queue,
            steps=steps,
            writer=self.writer,
            retries=retries,
            metrics=metrics,
            clock=clock,
        )

    def _view(self, queue: WorkQueue[TreeKey] | None = None) -> ClusterView:
        view = ClusterView(KINDS, self.queue if queue is None else queue)
        for number, rack in (("1", "r1"), ("2", "r2")):
            view.on_node(Added(f"n{number}", node(f"n{number}", labels={"rack": rack})))
        return view

    def pod(self, group: str, place: str) -> None:
        """Have the one pod of a group on a node, or delete it."""
        (before,) = members(group, 1)
        self.view.on_pod(Deleted(before.metadata.key, before))
        if place:
            (now,) = members(group, 1, node=place)
            self.view.on_pod(Added(now.metadata.key, now))

    def report(self) -> None:
        """Have the watch report one more event."""
        if self.api.events:
            kind, plain = self.api.events.popleft()
            self.view.put(CRD, msgspec.convert(plain, kind))

    async def reconcile(self, seconds: float) -> None:
        """Let time pass, and reconcile what is due."""
        self.api.now += seconds
        while (key := self.queue.pop()) is not None:
            self.reconciler.reconcile(key)
        await yield_to_writer()

    async def decide(self, result: WriteResult) -> None:
        """Decide the result of the oldest write in flight."""
        if self.api.waiting:
            self.api.waiting.popleft().set_result(result)
        await yield_to_writer()

    def overwrite(self, name: str, status: Plain) -> None:
        """Have a foreign manager write a status."""
        self.api.apply(name, status, "foreign")

    async def settle(self) -> None:
        """Let everything finish."""
        for _ in range(MAX_ROUNDS):
            wait = self.queue.seconds_until_due()
            if wait is None and not self.api.waiting and not self.api.events:
                return
            await self.decide("succeeds")
            self.report()
            await self.reconcile(wait or 0.0)
        raise AssertionError("it does not settle")

    def wrong_groups(self) -> list[str]:
        """Return the groups with another status in the API than a new operator would write."""
        fresh = self._view(RecordingQueue())
        for kind, plain in map(found, self.api.groups.values()):
            fresh.put(CRD, msgspec.convert(plain, kind))
        for name in "ab":
            for one in self.view.members(CRD, key_of(pod_group(name))):
                fresh.on_pod(Added(one.metadata.key, one))
        key = TreeKey(CRD, key_of(composite("root")))
        context = build_context(
            fresh,
            key,
            now=self.api.now,
            timestamp=TIMESTAMP,
            seconds_since=lambda since: self.api.now - since,
            partial_after=600.0,
            scheduler_names=frozenset({SCHEDULER_NAME}),
        )
        return [write.target.name for write in report_health(context).writes]


async def yield_to_writer() -> None:
    """Let the writer run until it waits for an answer."""
    for _ in range(8):
        await asyncio.sleep(0)


pods = st.tuples(st.just("pod"), st.sampled_from("ab"), st.sampled_from(["", "n1", "n2"]))
reconciles = st.tuples(st.just("reconcile"), st.sampled_from([0.3, 2.0]))
results = st.tuples(st.just("decide"), st.sampled_from(["succeeds", "succeeds", "fails", "succeeds without answer"]))
foreign = st.tuples(st.just("overwrite"), st.sampled_from(GROUPS), st.sampled_from(FOREIGN_STATUSES))
stories = st.lists(
    st.one_of(pods, pods, reconciles, reconciles, results, foreign, st.just(("report",))), min_size=4, max_size=30
)


async def play(story: list[tuple[Any, ...]]) -> list[str]:
    """Play a story to its end; return the groups with a wrong status."""
    rig = Rig()
    working = asyncio.create_task(rig.writer.run())
    while rig.api.events:
        rig.report()
    await rig.settle()
    for action, *arguments in story:
        waiting = getattr(rig, action)(*arguments)
        if waiting is not None:
            await waiting
    await rig.settle()
    working.cancel()
    await asyncio.wait({working})
    return rig.wrong_groups()


@settings(max_examples=200)
@given(stories)
def test_in_the_end_every_status_is_right(story: list[tuple[Any, ...]]) -> None:
    """However reconciles, results of writes, pods, foreign writers and a late watch interleave."""
    assert asyncio.run(play(story)) == []


def test_a_pod_that_is_deleted_while_its_count_is_in_flight_is_not_counted() -> None:
    """The reconcile in between finds the old status right, and the write that succeeds after it makes it wrong."""
    story = [("pod", "a", "n1"), ("reconcile", 2.0), ("pod", "a", ""), ("reconcile", 2.0)]
    assert asyncio.run(play(story)) == []
