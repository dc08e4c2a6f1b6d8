"""Binding: everything that was decided is tried, nothing is guessed, and what is refused is given back."""

import asyncio
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
from cpg_scheduler.binding.binder import REASON_IN_DOUBT, REASON_WAITING, BindBatch, Binder, BindFailure
from cpg_scheduler.binding.volumes import VolumeBinder
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.testing.wire import Wire

SILENCE = ConnectionFailedError("server", "POST", "no answer")
DENIED = ApiError(403, "Forbidden", "by a webhook")


class Office:
    """A binder with three pods to bind, whoever waits for the outcome, and an API server that has the pods."""

    def __init__(self, tasks: asyncio.TaskGroup, *, in_flight: int = 9) -> None:
        self.waits: list[float] = []
        self.wire = Wire(Timing(sleep=self._sleep))
        self.stage = Stage(node("n1"), *(pod(name, cpu=1) for name in "abcd"))
        self.told: list[str] = []
        self.trouble = BindFailure(frozenset())
        self.said: list[BindFailure] = []
        for name in "abcd":
            self.show(name)
        connection = cast("Connection", self.wire)
        self.binder = Binder(
            connection,
            self.stage.state,
            tasks,
            furnisher=VolumeBinder(connection, self.stage.state, patience=5),
            metrics=self.stage.metrics,
            log=structlog.wrap_logger(self.stage.log, processors=[]),
            in_flight=in_flight,
            backoff=WatchBackoff(first=1, longest=8),
        )

    async def _sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        await asyncio.sleep(0)

    def show(self, name: str, **fields: Any) -> None:
        """Have the API server answer with a pod, perhaps with a node or another UID."""
        meta = {"name": name, "namespace": "default", "uid": f"uid-default-{name}", **fields.pop("metadata", {})}
        self.wire.objects[f"/api/v1/namespaces/default/pods/{name}"] = {"metadata": meta, **fields}

    def start(self, names: str = "abc", *choices: VolumeAllocation, root: str = "") -> None:
        """Begin to bind these pods, as members of one root."""
        pods = {found.metadata.uid: found for found in map(self.stage.pod, names)}
        for uid in pods:
            self.stage.state.assume(uid, "n1", choices)
        order = BindBatch(
            root=self.stage.state.unit_of(self.stage.pod(root or names[0])),
            pods=pods,
            nodes=dict.fromkeys(pods, "n1"),
            placed=lambda: self.told.append(f"placed {names}"),
            failed=lambda trouble: self._failed(names, trouble),
            waits=self.said.append,
            allocations=choices,
        )
        self.binder.start(order)

    def _failed(self, names: str, trouble: BindFailure) -> None:
        self.told.append(f"failed {names}")
        self.trouble = trouble

    def fail(self, name: str, *errors: Exception) -> None:
        """Let the first binds of a pod fail in these ways."""
        left = list(errors)
        self.wire.error = lambda write: left.pop(0) if left and write.path.endswith(f"/{name}/binding") else None

    def assumed(self) -> list[str]:
        """Return the pods that count as bound."""
        pods = self.stage.state.pods.values()
        return sorted(found.metadata.name for found in pods if found.spec.node_name)

    def sent(self, name: str) -> int:
        """Return how many binds of a pod have come through."""
        return sum(write.path.endswith(f"/{name}/binding") for write in self.wire.writes)


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[Office]:
    """Return an office; wait until everything in it is done."""
    async with asyncio.TaskGroup() as tasks:
        office = Office(tasks, **options)
        yield office
        await until(lambda: not office.binder.under_way)


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
    async with opened() as office:
        office.start()
    assert sorted(write.path for write in office.wire.writes) == [
        f"/api/v1/namespaces/default/pods/{name}/binding" for name in "abc"
    ]
    assert {write.body["target"]["name"] for write in office.wire.writes} == {"n1"}
    assert (office.told, office.assumed(), office.binder.under_way) == (["placed abc"], ["a", "b", "c"], 0)


async def test_what_is_under_way_is_counted_by_orders() -> None:
    """Nothing is, only when the last of them is done."""
    async with opened() as office:
        office.start("ab")
        office.start("c")
        assert office.binder.under_way == 2
        await office.binder.drained()
        assert office.binder.under_way == 0
    assert sorted(office.told) == ["placed ab", "placed c"]


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    """The API server serves others, too; what is under way is known until the last has come back."""
    async with opened(in_flight=2) as office:
        office.wire.open.clear()
        office.start()
        await turns()
        assert (office.binder.under_way, office.wire.in_flight) == (1, 2)
        office.start("d")
        await turns()
        assert office.wire.in_flight == 2
        office.wire.open.set()
    assert (len(office.wire.writes), office.wire.most_in_flight, office.binder.under_way) == (4, 2, 0)


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
    async with opened() as office:
        office.show("b", **there)
        office.fail("b", error)
        office.start()
    assert (office.told, office.assumed()) == (["failed abc"], ["a", "c"])
    expected = f"Pod default/b cannot be bound to node n1: {why}"
    assert office.trouble == BindFailure(frozenset({"uid-default-b"}), "SchedulerError", expected)
    assert office.waits == []


async def test_of_several_refusals_the_first_is_told() -> None:
    """With how many more there are."""
    async with opened() as office:
        office.wire.error = lambda _: DENIED
        office.start()
    assert office.trouble.uids == {"uid-default-a", "uid-default-b", "uid-default-c"}
    assert office.trouble.message.startswith("Pod default/a (and 2 more) cannot be bound")


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
    async with opened() as office:
        office.show("b", **(there or {}))
        if there == {}:
            office.wire.objects.clear()
        office.fail("b", ApiError(404, "NotFound", "") if there is None else ApiError(409, "Conflict", ""))
        office.start()
    assert (office.assumed(), office.trouble) == (["a", "c"], BindFailure(frozenset()))
    counted = office.stage.metrics.page("").body
    assert b'binds_total{result="gone"} 1.0' in counted
    assert b'binds_total{result="error"} 0.0' in counted


async def test_a_conflict_with_our_own_bind_is_none() -> None:
    """The pod has the node that it was to have."""
    async with opened() as office:
        office.show("b", spec={"nodeName": "n1"})
        office.fail("b", ApiError(409, "Conflict", "already assigned"))
        office.start()
    assert (office.told, office.assumed()) == (["placed abc"], ["a", "b", "c"])


# What nobody can say.


@pytest.mark.parametrize("error", [SILENCE, ApiError(504, "Timeout", ""), ApiError(503, "ServiceUnavailable", "")])
async def test_a_bind_without_an_answer_that_has_worked_is_not_sent_again(error: Exception) -> None:
    """The pod is read, and has its node."""
    async with opened() as office:
        office.show("b", spec={"nodeName": "n1"})
        office.fail("b", error)
        office.start()
    assert (office.told, office.sent("b"), office.waits) == (["placed abc"], 0, [1.0])


async def test_a_bind_without_an_answer_that_has_not_worked_is_sent_again() -> None:
    """As often as it takes, less and less often, and the pod counts as bound meanwhile."""
    async with opened() as office:
        assumed = []
        office.fail("b", *[SILENCE] * 4)
        office.stage.log.calls.clear()
        office.start()
        while not office.told:
            assumed.append(office.assumed())
            await asyncio.sleep(0)
    assert (office.told, office.sent("b"), office.waits) == (["placed abc"], 1, [1, 2, 4, 8])
    assert all(found == ["a", "b", "c"] for found in assumed)
    assert len(office.wire.reads) == 4


async def test_a_pod_that_cannot_be_read_stays_in_doubt() -> None:
    """An outage says nothing about the bind before it, nor does an answer that cannot be read."""
    async with opened() as office:
        office.show("b", spec=["odd"])
        answers = iter([SILENCE, ApiError(403, "Forbidden", "not for you"), None, None])
        office.wire.error = lambda write: next(answers) if "/pods/b" in write.path else None
        office.start()
        await until(lambda: len(office.waits) == 3)
        assert office.assumed() == ["a", "b", "c"]
        office.show("b", spec={"nodeName": "n1"})
    assert office.told == ["placed abc"]


async def test_an_internal_error_that_stays_is_an_answer() -> None:
    """A webhook that is not there answers like this; one that comes back in time does no harm."""
    error = ApiError(500, "InternalError", "failed calling webhook")
    async with opened() as office:
        office.fail("b", *[error] * 3)
        office.start()
    assert (office.told, office.waits) == (["failed abc"], [1, 2])
    assert "failed calling webhook" in office.trouble.message
    async with opened() as office:
        office.fail("b", *[error] * 2)
        office.start()
    assert office.told == ["placed abc"]


async def test_a_bind_that_stays_in_doubt_is_told_of_and_holds_up_nobody() -> None:
    """In what was answered last, once for a pod, when it takes long; who waits for the binder does not wait for it."""
    async with opened() as office:
        now, gate = [100.0], asyncio.Event()

        async def sleep(seconds: float) -> None:
            now[0] += seconds
            office.waits.append(seconds)
            if len(office.waits) == 5:
                await gate.wait()

        office.wire.timing = Timing(sleep=sleep, clock=lambda: now[0])
        asked = "POST /api/v1/namespaces/default/pods/b/binding"
        office.fail("b", SILENCE, *[ApiError(503, "ServiceUnavailable", "overloaded", request=asked)] * 6)
        office.start()
        await until(lambda: len(office.waits) == 5)
        message = "not known yet whether the bind to node n1 has worked: 503 ServiceUnavailable: overloaded"
        assert office.said == [BindFailure(frozenset({"uid-default-b"}), REASON_IN_DOUBT, message)]
        async with asyncio.timeout(1):
            await office.binder.drained()
        assert (office.told, office.assumed(), office.binder.under_way) == ([], ["a", "b", "c"], 1)
        gate.set()
    assert (office.told, len(office.said)) == (["placed abc"], 1)


async def test_a_bind_in_doubt_takes_no_place() -> None:
    """Others are bound while it waits to be looked at, and it finds a place again when nobody else does."""
    async with opened(in_flight=1) as office:
        silent = asyncio.Event()

        async def sleep(_: float) -> None:
            await silent.wait()

        office.wire.timing = Timing(sleep=sleep)
        office.fail("a", SILENCE)
        office.start("ab")
        await turns()
        assert (office.sent("a"), office.sent("b")) == (0, 1)
        office.wire.open.clear()
        office.start("c")
        await turns()
        silent.set()
        await turns()
        assert (office.told, office.wire.in_flight) == ([], 1)
        office.wire.open.set()
    assert office.told == ["placed c", "placed ab"]


# What has arrived meanwhile.


def _cordon(stage: Stage) -> None:
    stage.put(node("n1", unschedulable=True))


def _delete(stage: Stage) -> None:
    stage.delete(stage.pod("b"))


@pytest.mark.parametrize("happens", [_cordon, _delete])
async def test_an_order_that_is_outdated_is_given_back_before_its_first_bind(happens: Callable[[Stage], None]) -> None:
    """As a whole, nothing is sent, and the root is tried again at once."""
    async with opened() as office:
        office.start()
        happens(office.stage)
    assert (office.wire.writes, office.assumed()) == ([], [])
    assert (office.told, office.trouble.at_once, office.trouble.message) == (["failed abc"], True, "")
    assert office.binder.under_way == 0


async def test_an_order_goes_where_an_earlier_one_of_its_root_goes() -> None:
    """What was added to a gang is not bound without it, whatever comes of others."""
    async with opened() as office:
        office.start("ab")
        office.start("c", root="a")
        office.start("d")
        _delete(office.stage)
    assert (office.told, office.assumed()) == (["failed ab", "failed c", "placed d"], ["d"])
    assert office.trouble.at_once


async def test_an_order_with_which_nothing_is_wrong_goes_on() -> None:
    """What has arrived does not concern it."""
    async with opened() as office:
        office.start()
        office.stage.put(node("n2"), pod("running", cpu=1, node_name="n1"))
    assert office.told == ["placed abc"]


async def test_pods_that_never_quite_suited_each_other_are_bound_all_the_same() -> None:
    """What the decision itself brought about is no news; it would be given back and decided so again for ever."""
    rule = TopologySpreadConstraint(
        topology_key="kubernetes.io/hostname",
        when_unsatisfiable="DoNotSchedule",
        label_selector=LabelSelector({"app": "web"}),
    )
    async with opened() as office:
        hosts = (node(name, labels={"kubernetes.io/hostname": name}) for name in ("n1", "n2"))
        first, second = (metadata(name, app="web") for name in "ab")
        office.stage.put(*hosts, pod("a", meta=first, topology_spread_constraints=(rule,)), pod("b", meta=second))
        office.start("ab")
        office.stage.put(pod("running", node_name="n2"))
    assert office.told == ["placed ab"]


async def test_an_order_is_not_looked_at_again_after_its_first_bind() -> None:
    """Half a gang is worse than a gang on a node that has just been cordoned."""
    async with opened(in_flight=1) as office:
        office.start()
        await until(lambda: office.wire.writes)
        _cordon(office.stage)
    assert office.told == ["placed abc"]


# Volumes first.


class Storehouse(Office):
    """An office in which the pods a and b have claims of their own, to be made at the node."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        super().__init__(tasks)
        self.stage.put(storage_class(provisioner=DRIVER), claim("x"), claim("y"))
        self.stage.put(pod("a", cpu=1, volumes=using("x")), pod("b", cpu=1, volumes=using("y")))
        for name in "xy":
            meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "5"}
            spec = {"storageClassName": "local"}
            self.wire.objects[f"/api/v1/namespaces/default/persistentvolumeclaims/{name}"] = {
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
        office = Storehouse(tasks)
        office.start("ab", *(VolumeAllocation(f"default/{name}", None, "n1") for name in "xy"))
        await turns()
        yield office
        await until(lambda: not office.binder.under_way)


async def test_nobody_is_bound_before_all_volumes_are_there() -> None:
    """The claims are told their node at once, and others are bound meanwhile."""
    async with stored() as office:
        assert [write.method for write in office.wire.writes] == ["PATCH", "PATCH"]
        office.stage.put(pod("other", cpu=1))
        office.bind_claim("x")
        await turns()
        assert (len(office.wire.writes), office.told, office.binder.under_way) == (2, [], 1)
        await office.binder.drained()
        office.bind_claim("y")
    assert (office.told, office.sent("a"), office.sent("b")) == (["placed ab"], 1, 1)


async def test_one_volume_that_cannot_be_had_ends_the_order() -> None:
    """Everybody in it is told which, and what was chosen is given up."""
    async with stored() as office:
        office.bind_claim("x")
        office.show_claim("y")
    assert (office.told, office.assumed(), office.sent("a")) == (["failed ab"], [], 0)
    message = 'volumes: no volume could be made for persistentvolumeclaim "default/y": its events say why'
    assert office.trouble == BindFailure(frozenset({"uid-default-a", "uid-default-b"}), "Unschedulable", message)
    assert office.stage.state.snapshot.ledger.volume_allocator.chosen == {}


async def test_a_later_order_of_the_same_root_waits_for_the_volumes_of_the_earlier() -> None:
    """A member that comes late is not bound to a gang that comes to nothing."""
    async with stored() as office:
        office.stage.put(claim("z"), pod("c", cpu=1, volumes=using("z")))
        office.start("c", root="a")
        office.start("d")
        await turns()
        assert office.told == ["placed d"]
        office.show_claim("y")
    assert office.told == ["placed d", "failed ab", "failed c"]
    assert (office.trouble.at_once, office.sent("c")) == (True, 0)


async def test_a_later_order_is_bound_when_the_earlier_has_its_volumes() -> None:
    """Nothing remains to be waited for afterwards."""
    async with stored() as office:
        office.start("c", root="a")
        office.bind_claim("x")
        office.bind_claim("y")
    assert sorted(office.told) == ["placed ab", "placed c"]
    assert office.binder._latest == {}


async def test_volumes_that_turn_out_to_be_elsewhere_are_noticed() -> None:
    """A claim may have been bound to another volume than was thought; the order is decided anew."""
    async with stored() as office:
        office.stage.put(volume("pv-x", at={"zone": ["far"]}))
        office.show_claim("x", bound_to="pv-x")
        office.bind_claim("y")
    assert (office.told, office.trouble.at_once, office.sent("a")) == (["failed ab"], True, 0)


async def test_waiting_for_volumes_is_told_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under a name of its own, because no new node would help."""
    monkeypatch.setattr(binder, "SLOW", 0.0)
    async with stored() as office:
        await asyncio.sleep(0.01)
        office.bind_claim("x")
        office.bind_claim("y")
    message = 'waiting for persistentvolumeclaim "default/x" and 1 more to be bound'
    assert office.said == [BindFailure(frozenset({"uid-default-a", "uid-default-b"}), REASON_WAITING, message)]
