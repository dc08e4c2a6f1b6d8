"""Binding: everything that was decided is tried, nothing is guessed, and what is refused is given back."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import structlog
from msgspec.structs import replace

from cpg_api.core.affinity import TopologySpreadConstraint
from cpg_api.meta import LabelSelector
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.retrying import WatchBackoff
from cpg_client.timing import Timing
from cpg_engine.decisions import VolumeAllocation
from cpg_engine.testing.builders import metadata, node, pod
from cpg_engine.testing.storage_builders import DRIVER, claim, storage_class, using, volume
from cpg_scheduler.binding import binder
from cpg_scheduler.binding.batch import (
    BindBatch,
    BindDelayed,
    BindEvent,
    BindFailed,
    BindFailure,
    BindInDoubt,
    BindRefused,
    BindSucceeded,
    PreBindFailed,
    PreBindPending,
)
from cpg_scheduler.binding.binder import Binder
from cpg_scheduler.binding.volumes import VolumeBinder
from cpg_scheduler.inbox import EventInbox
from cpg_scheduler.testing.fake_connection import FakeConnection
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.write_gate import WriteGate

SILENCE = ConnectionFailedError("server", "POST", "no answer")
DENIED = ApiError(403, "Forbidden", "by a webhook")


class BinderBench:
    """A binder with three pods to bind, the inbox for its outcomes, and an API server that has the pods."""

    def __init__(self, tasks: asyncio.TaskGroup, *, in_flight: int = 9) -> None:
        self.waits: list[float] = []
        self.api = FakeConnection(Timing(sleep=self._sleep))
        self.stage = Stage(node("n1"), *(pod(name, cpu=1) for name in "abcd"))
        self.inbox, self.gate, self.ids = EventInbox(), WriteGate(), itertools.count()
        for name in "abcd":
            self.show(name)
        connection = cast("Connection", self.api)
        self.binder = Binder(
            connection,
            self.stage.cache,
            tasks,
            inbox=self.inbox,
            gate=self.gate,
            prebinds=[VolumeBinder(connection, self.stage.cache, timeout=5)],
            metrics=self.stage.metrics,
            log=structlog.wrap_logger(self.stage.log, processors=[]),
            in_flight=in_flight,
            backoff=WatchBackoff(first=1, longest=8),
        )
        self._events: list[BindEvent] = []

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    def show(self, name: str, **fields: Any) -> None:
        """Have the API server answer with a pod, perhaps with a node or another UID."""
        meta = {"name": name, "namespace": "default", "uid": f"uid-default-{name}", **fields.pop("metadata", {})}
        self.api.objects[f"/api/v1/namespaces/default/pods/{name}"] = {"metadata": meta, **fields}

    def start(self, names: str = "abc", *allocations: VolumeAllocation, root: str = "") -> None:
        """Begin to bind these pods, as members of one unit."""
        pods = {found.metadata.uid: found for found in map(self.stage.pod, names)}
        for uid in pods:
            self.stage.cache.assume(uid, "n1", allocations)
        batch = BindBatch(
            id=next(self.ids),
            root=self.stage.cache.unit_of(self.stage.pod(root or names[0])),
            pods=pods,
            nodes=dict.fromkeys(pods, "n1"),
            allocations={next(iter(pods)): allocations},
        )
        self.stage.cache.binds_in_flight.begin(batch.id, pods)
        self.binder.start(batch)

    @property
    def events(self) -> list[BindEvent]:
        """Return all events that the binder has put into the inbox."""
        self._events.extend(self.inbox.take())
        return self._events

    @property
    def outcomes(self) -> list[str]:
        """Return how batches have ended, each with the names of its pods."""
        words = {BindSucceeded: "bound", BindFailed: "failed"}
        ended = [event for event in self.events if not isinstance(event, BindDelayed)]
        return [
            f"{words[type(event)]} {''.join(found.metadata.name for found in event.batch.pods.values())}"
            for event in ended
        ]

    @property
    def failure(self) -> BindFailure:
        """Return how the last batch failed."""
        return [event.failure for event in self.events if isinstance(event, BindFailed)][-1]

    @property
    def delays(self) -> list[BindFailure]:
        """Return the delays that were reported."""
        return [event.failure for event in self.events if isinstance(event, BindDelayed)]

    def fail(self, name: str, *errors: Exception) -> None:
        """Let the first binds of a pod fail in these ways."""
        left = list(errors)
        self.api.error = lambda write: left.pop(0) if left and write.path.endswith(f"/{name}/binding") else None

    def assumed(self) -> list[str]:
        """Return the pods that count as bound."""
        pods = self.stage.cache.pods.values()
        return sorted(found.metadata.name for found in pods if found.spec.node_name)

    def sent(self, name: str) -> int:
        """Return how many binds of a pod have come through."""
        return sum(write.path.endswith(f"/{name}/binding") for write in self.api.writes)


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[BinderBench]:
    """Return an bench; wait until everything in it is done."""
    async with asyncio.TaskGroup() as tasks:
        bench = BinderBench(tasks, **options)
        yield bench
        await until(lambda: not bench.binder.active)


async def turns(count: int = 20) -> None:
    """Let others run for a while."""
    for _ in range(count):
        await asyncio.sleep(0)


async def until(holds: Callable[[], object]) -> None:
    """Let others run until something holds."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    pytest.fail("it does not come to that")


# What works.


async def test_all_pods_of_an_order_are_bound() -> None:
    """Each by its own request, and who waits is told once."""
    async with opened() as bench:
        bench.start()
    assert sorted(write.path for write in bench.api.writes) == [
        f"/api/v1/namespaces/default/pods/{name}/binding" for name in "abc"
    ]
    assert {write.body["target"]["name"] for write in bench.api.writes} == {"n1"}
    assert (bench.outcomes, bench.assumed(), bench.binder.active) == (["bound abc"], ["a", "b", "c"], 0)


async def test_what_is_under_way_is_counted_by_orders() -> None:
    """Nothing is, only when the last of them is done."""
    async with opened() as bench:
        bench.start("ab")
        bench.start("c")
        assert bench.binder.active == 2
        await bench.gate.wait_open()
        assert bench.binder.active == 0
    assert sorted(bench.outcomes) == ["bound ab", "bound c"]


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    """The API server serves others, too; what is under way is known until the last has come back."""
    async with opened(in_flight=2) as bench:
        bench.api.open.clear()
        bench.start()
        await turns()
        assert (bench.binder.active, bench.api.in_flight) == (1, 2)
        bench.start("d")
        await turns()
        assert bench.api.in_flight == 2
        bench.api.open.set()
    assert (len(bench.api.writes), bench.api.most_in_flight, bench.binder.active) == (4, 2, 0)


# What is refused.


@pytest.mark.parametrize(
    ("error", "there", "why"),
    [
        (DENIED, {}, "403 Forbidden: by a webhook"),
        (ApiError(422, "Invalid", "no such thing"), {}, "422 Invalid: no such thing"),
        (ApiError(409, "Conflict", "busy"), {}, "409 Conflict: busy"),
        (ApiError(409, "Conflict", "bound"), {"spec": {"nodeName": "n2"}}, "it is bound to node n2"),
    ],
)
async def test_a_bind_that_is_refused_is_given_back(error: ApiError, there: dict[str, Any], why: str) -> None:
    """The others are bound all the same, and the reason is told of the pod that was refused."""
    async with opened() as bench:
        bench.show("b", **there)
        bench.fail("b", error)
        bench.start()
    assert (bench.outcomes, bench.assumed()) == (["failed abc"], ["a", "c"])
    assert bench.failure == BindFailure(frozenset({"uid-default-b"}), BindRefused("default/b", 0, "n1", why))
    assert bench.waits == []


async def test_of_several_refusals_the_first_is_told() -> None:
    """With how many more there are."""
    async with opened() as bench:
        bench.api.error = lambda _: DENIED
        bench.start()
    assert bench.failure.uids == {"uid-default-a", "uid-default-b", "uid-default-c"}
    assert bench.failure.problem == BindRefused("default/a", 2, "n1", "403 Forbidden: by a webhook")


@pytest.mark.parametrize(
    "there",
    [
        None,
        {},
        {"metadata": {"uid": "another"}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"status": {"phase": "Failed"}},
    ],
    ids=["not found", "gone", "made anew", "terminating", "ended"],
)
async def test_nothing_is_said_about_a_pod_that_is_gone(there: dict[str, Any] | None) -> None:
    """Whether the bind was not found, or in conflict with what has become of the pod."""
    async with opened() as bench:
        bench.show("b", **(there or {}))
        if there == {}:
            bench.api.objects.clear()
        bench.fail("b", ApiError(404, "NotFound", "") if there is None else ApiError(409, "Conflict", ""))
        bench.start()
    assert (bench.assumed(), bench.failure) == (["a", "c"], BindFailure(frozenset()))
    counted = bench.stage.metrics.page("").body
    assert b'binds_total{result="gone"} 1.0' in counted
    assert b'binds_total{result="error"} 0.0' in counted


async def test_a_conflict_with_our_own_bind_is_none() -> None:
    """The pod has the node that it was to have."""
    async with opened() as bench:
        bench.show("b", spec={"nodeName": "n1"})
        bench.fail("b", ApiError(409, "Conflict", "already assigned"))
        bench.start()
    assert (bench.outcomes, bench.assumed()) == (["bound abc"], ["a", "b", "c"])


# What nobody can say.


@pytest.mark.parametrize("error", [SILENCE, ApiError(504, "Timeout", ""), ApiError(503, "ServiceUnavailable", "")])
async def test_a_bind_without_an_answer_that_has_worked_is_not_sent_again(error: Exception) -> None:
    """The pod is read, and has its node."""
    async with opened() as bench:
        bench.show("b", spec={"nodeName": "n1"})
        bench.fail("b", error)
        bench.start()
    assert (bench.outcomes, bench.sent("b"), bench.waits) == (["bound abc"], 0, [1.0])


async def test_a_bind_without_an_answer_that_has_not_worked_is_sent_again() -> None:
    """As often as it takes, less and less often, and the pod counts as bound meanwhile."""
    async with opened() as bench:
        assumed = []
        bench.fail("b", *[SILENCE] * 4)
        bench.stage.log.calls.clear()
        bench.start()
        while not bench.outcomes:
            assumed.append(bench.assumed())
            await asyncio.sleep(0)
    assert (bench.outcomes, bench.sent("b"), bench.waits) == (["bound abc"], 1, [1, 2, 4, 8])
    assert all(found == ["a", "b", "c"] for found in assumed)
    assert len(bench.api.reads) == 4


async def test_a_pod_that_cannot_be_read_stays_in_doubt() -> None:
    """An outage says nothing about the bind before it, nor does an answer that cannot be read."""
    async with opened() as bench:
        bench.show("b", spec=["odd"])
        answers = iter([SILENCE, ApiError(403, "Forbidden", "not for you"), None, None])
        bench.api.error = lambda write: next(answers) if "/pods/b" in write.path else None
        bench.start()
        await until(lambda: len(bench.waits) == 3)
        assert bench.assumed() == ["a", "b", "c"]
        bench.show("b", spec={"nodeName": "n1"})
    assert bench.outcomes == ["bound abc"]


async def test_an_internal_error_that_stays_is_an_answer() -> None:
    """A webhook that is not there answers like this; one that comes back in time does no harm."""
    error = ApiError(500, "InternalError", "failed calling webhook")
    async with opened() as bench:
        bench.fail("b", *[error] * 3)
        bench.start()
    assert (bench.outcomes, bench.waits) == (["failed abc"], [1, 2])
    assert "failed calling webhook" in str(bench.failure.problem)
    async with opened() as bench:
        bench.fail("b", *[error] * 2)
        bench.start()
    assert bench.outcomes == ["bound abc"]


async def test_a_bind_that_stays_in_doubt_is_told_of_and_holds_up_nobody() -> None:
    """In what was answered last, once for a pod, when it takes long; who waits for the binder does not wait for it."""
    async with opened() as bench:
        now, gate = [100.0], asyncio.Event()

        async def sleep(seconds: float) -> None:
            now[0] += seconds
            bench.waits.append(seconds)
            if len(bench.waits) == 5:
                await gate.wait()

        bench.api.timing = Timing(sleep=sleep, clock=lambda: now[0])
        asked = "POST /api/v1/namespaces/default/pods/b/binding"
        bench.fail("b", SILENCE, *[ApiError(503, "ServiceUnavailable", "overloaded", request=asked)] * 6)
        bench.start()
        await until(lambda: len(bench.waits) == 5)
        problem = BindInDoubt("n1", "503 ServiceUnavailable: overloaded")
        assert bench.delays == [BindFailure(frozenset({"uid-default-b"}), problem)]
        async with asyncio.timeout(1):
            await bench.gate.wait_open()
        assert (bench.outcomes, bench.assumed(), bench.binder.active) == ([], ["a", "b", "c"], 1)
        gate.set()
    assert (bench.outcomes, len(bench.delays)) == (["bound abc"], 1)


async def test_a_bind_in_doubt_takes_no_place() -> None:
    """Others are bound while it waits to be looked at, and it finds a place again when nobody else does."""
    async with opened(in_flight=1) as bench:
        silent = asyncio.Event()

        async def sleep(_: float) -> None:
            await silent.wait()

        bench.api.timing = Timing(sleep=sleep)
        bench.fail("a", SILENCE)
        bench.start("ab")
        await turns()
        assert (bench.sent("a"), bench.sent("b")) == (0, 1)
        bench.api.open.clear()
        bench.start("c")
        await turns()
        silent.set()
        await turns()
        assert (bench.outcomes, bench.api.in_flight) == ([], 1)
        bench.api.open.set()
    assert bench.outcomes == ["bound c", "bound ab"]


# What has arrived meanwhile.


def _cordon(stage: Stage) -> None:
    stage.put(node("n1", unschedulable=True))


def _delete(stage: Stage) -> None:
    stage.delete(stage.pod("b"))


@pytest.mark.parametrize("happens", [_cordon, _delete])
async def test_an_order_that_is_outdated_is_given_back_before_its_first_bind(happens: Callable[[Stage], None]) -> None:
    """As a whole, nothing is sent, and the root is tried again at once."""
    async with opened() as bench:
        bench.start()
        happens(bench.stage)
    assert (bench.api.writes, bench.assumed()) == ([], [])
    assert (bench.outcomes, bench.failure.is_outdated, bench.failure.problem) == (["failed abc"], True, None)
    assert bench.binder.active == 0


async def test_an_order_goes_where_an_earlier_one_of_its_root_goes() -> None:
    """What was added to a gang is not bound without it, whatever comes of others."""
    async with opened() as bench:
        bench.start("ab")
        bench.start("c", root="a")
        bench.start("d")
        _delete(bench.stage)
    assert (bench.outcomes, bench.assumed()) == (["failed ab", "failed c", "bound d"], ["d"])
    assert bench.failure.is_outdated


async def test_an_order_with_which_nothing_is_wrong_goes_on() -> None:
    """What has arrived does not concern it."""
    async with opened() as bench:
        bench.start()
        bench.stage.put(node("n2"), pod("running", cpu=1, node_name="n1"))
    assert bench.outcomes == ["bound abc"]


async def test_pods_that_never_quite_suited_each_other_are_bound_all_the_same() -> None:
    """What the decision itself brought about is no news; it would be given back and decided so again for ever."""
    rule = TopologySpreadConstraint(
        topology_key="kubernetes.io/hostname",
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector({"app": "web"}),
    )
    async with opened() as bench:
        hosts = (node(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2"))
        first, second = (metadata(name, app="web") for name in "ab")
        bench.stage.put(*hosts, pod("a", meta=first, topology_spread_constraints=(rule,)), pod("b", meta=second))
        bench.start("ab")
        bench.stage.put(pod("running", node_name="n2"))
    assert bench.outcomes == ["bound ab"]


async def test_an_order_is_not_looked_at_again_after_its_first_bind() -> None:
    """Half a gang is worse than a gang on a node that has just been cordoned."""
    async with opened(in_flight=1) as bench:
        bench.start()
        await until(lambda: bench.api.writes)
        _cordon(bench.stage)
    assert bench.outcomes == ["bound abc"]


# Volumes first.


class Storehouse(BinderBench):
    """An bench in which the pods a and b have claims of their own, to be made at the node."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        super().__init__(tasks)
        self.stage.put(storage_class(provisioner=DRIVER), claim("x"), claim("y"))
        self.stage.put(pod("a", cpu=1, volumes=using("x")), pod("b", cpu=1, volumes=using("y")))
        for name in "xy":
            meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "5"}
            spec = {"storageClassName": "local"}
            self.api.objects[f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"] = {
                "metadata": meta,
                "spec": spec,
            }

    def show_claim(self, name: str, **fields: Any) -> None:
        """Let the watch show a claim as it is after our write."""
        found = claim(name, **fields)
        self.stage.put(replace(found, metadata=replace(found.metadata, resource_version="9")))

    def bind_claim(self, name: str) -> None:
        """Let the watch show a claim as bound."""
        self.stage.put(volume(f"pv-{name}"))
        self.show_claim(name, bound_to=f"pv-{name}")


@asynccontextmanager
async def stored() -> AsyncIterator[Storehouse]:
    """Return a storehouse whose order has begun; wait until everything in it is done."""
    async with asyncio.TaskGroup() as tasks:
        bench = Storehouse(tasks)
        bench.start("ab", *(VolumeAllocation(f"default/{name}", None, "n1") for name in "xy"))
        await turns()
        yield bench
        await until(lambda: not bench.binder.active)


async def test_nobody_is_bound_before_all_volumes_are_there() -> None:
    """The claims are told their node at once, and others are bound meanwhile."""
    async with stored() as bench:
        assert [write.method for write in bench.api.writes] == ["PATCH", "PATCH"]
        bench.stage.put(pod("other", cpu=1))
        bench.bind_claim("x")
        await turns()
        assert (len(bench.api.writes), bench.outcomes, bench.binder.active) == (2, [], 1)
        await bench.gate.wait_open()
        bench.bind_claim("y")
    assert (bench.outcomes, bench.sent("a"), bench.sent("b")) == (["bound ab"], 1, 1)


async def test_one_volume_that_cannot_be_had_ends_the_order() -> None:
    """Everybody in it is told which, and what was chosen is given up."""
    async with stored() as bench:
        bench.bind_claim("x")
        bench.show_claim("y")
    assert (bench.outcomes, bench.assumed(), bench.sent("a")) == (["failed ab"], [], 0)
    problem = 'no volume could be made for persistentvolumeclaim "default/y": its events say why'
    uids = frozenset({"uid-default-a", "uid-default-b"})
    assert bench.failure == BindFailure(uids, PreBindFailed("volumes", problem))
    assert bench.stage.cache.snapshot.ledger.volume_allocator.allocated == {}


async def test_a_later_order_of_the_same_root_waits_for_the_volumes_of_the_earlier() -> None:
    """A member that comes late is not bound to a gang that comes to nothing."""
    async with stored() as bench:
        bench.stage.put(claim("z"), pod("c", cpu=1, volumes=using("z")))
        bench.start("c", root="a")
        bench.start("d")
        await turns()
        assert bench.outcomes == ["bound d"]
        bench.show_claim("y")
    assert bench.outcomes == ["bound d", "failed ab", "failed c"]
    assert (bench.failure.is_outdated, bench.sent("c")) == (True, 0)


async def test_a_later_order_is_bound_when_the_earlier_has_its_volumes() -> None:
    """Nothing remains to be waited for afterwards."""
    async with stored() as bench:
        bench.start("c", root="a")
        bench.bind_claim("x")
        bench.bind_claim("y")
    assert sorted(bench.outcomes) == ["bound ab", "bound c"]
    assert bench.binder._latest == {}


async def test_volumes_that_turn_out_to_be_elsewhere_are_noticed() -> None:
    """A claim may have been bound to another volume than was thought; the order is decided anew."""
    async with stored() as bench:
        bench.stage.put(volume("pv-x", at={"zone": ["far"]}))
        bench.show_claim("x", bound_to="pv-x")
        bench.bind_claim("y")
    assert (bench.outcomes, bench.failure.is_outdated, bench.sent("a")) == (["failed ab"], True, 0)


async def test_waiting_for_volumes_is_told_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a name of its own, because no new node would help."""
    monkeypatch.setattr(binder, "SLOW_SECONDS", 0.0)
    async with stored() as bench:
        await asyncio.sleep(0.01)
        bench.bind_claim("x")
        bench.bind_claim("y")
    claims = ('persistentvolumeclaim "default/x"', 'persistentvolumeclaim "default/y"')
    uids = frozenset({"uid-default-a", "uid-default-b"})
    assert bench.delays == [BindFailure(uids, PreBindPending("volumes", claims))]
