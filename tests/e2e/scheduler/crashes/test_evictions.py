"""Whatever happens in the middle of evicting: units are whole or gone, and nobody goes who need not.

The scene is full: four groups that go as a whole, then pods alone that matter more. A gang wants the room of all four
groups and of two pods, so whoever evicts anybody else, or leaves somebody of these, has made a mistake.
"""

import asyncio
import contextlib
import os
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_client.connection import MERGE_PATCH
from cpg_client.errors import ApiError
from cpg_client.listing import list_all
from cpg_client.resources import PODS
from cpg_client.watching import WatchEvent, watch
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Arena, Made

pytestmark = pytest.mark.e2e
CRASHES = int(os.environ.get("CRASHES", "4"))
SEED = int(os.environ.get("CRASH_SEED", "1"))
NODES = [f"node-{number}" for number in range(1, 9)]
WHOLE, WANTED = 4, 18
CLASSES = {"high": 100, "dear": 20, "low": 10, "least": 5}
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
Plain = dict[str, Any]


@pytest.fixture(scope="module")
def ring() -> Iterator[Cluster]:
    """Run a cluster with the controller that counts what budgets allow."""
    with Cluster(ClusterSpec(components=("controller-manager",), nodes=(NodePool.parse("8 nodes, cpu=4"),))) as cluster:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        classes = [{**kind, "metadata": {"name": name}, "value": value} for name, value in CLASSES.items()]
        text = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": classes}).decode()
        cluster.kubectl("apply", "-f", "-", input=text)
        yield cluster


def runs(arena: "Arena", name: str, node: str, *, matters: str = "low", group: str = "", **spec: Any) -> "Made":
    """Return a pod that runs on a node."""
    spec.setdefault("terminationGracePeriodSeconds", 0)
    return arena.pod(name, group=group, nodeName=node, priorityClassName=matters, **spec)


def wall(arena: "Arena", *nodes: str) -> list["Made"]:
    """Return what fills nodes, and is not to be evicted."""
    return [runs(arena, f"wall-{node}", node, matters="high", cpu="4") for node in nodes]


def scene(arena: "Arena") -> list["Made"]:
    """Return groups that go as a whole, each on four nodes, and pods alone on the other four."""
    wholes = [f"whole-{letter}" for letter in "abcd"]
    whole: Plain = {"disruptionMode": {"all": {}}, "priorityClassName": "least"}
    return [
        *(arena.group(name, WHOLE, **whole) for name in wholes),
        *(runs(arena, f"{name}-{n}", NODES[n], matters="least", group=name) for name in wholes for n in range(WHOLE)),
        *(runs(arena, f"alone-{n}-{m}", NODES[4 + n]) for n in range(4) for m in range(4)),
    ]


def gang(arena: "Arena", name: str = "high", size: int = WANTED, cpu: str = "1") -> list["Made"]:
    """Return who wants their room."""
    pods = (arena.pod(f"{name}-{n}", group=name, priorityClassName="high", cpu=cpu) for n in range(size))
    return [arena.group(name, size, priorityClassName="high"), *pods]


@contextlib.asynccontextmanager
async def steps(arena: "Arena") -> AsyncIterator[AsyncIterator[str]]:
    """Give the names of those who run, whenever one of them is told something, or is gone."""
    path = PODS.path(arena.namespace)
    before = await list_all(arena.connection, path)

    async def seen(events: AsyncIterator[WatchEvent]) -> AsyncIterator[str]:
        async for event in events:
            name: str = msgspec.json.decode(event.object)["metadata"].get("name", "high")  # a bookmark has none
            if event.type in {"MODIFIED", "DELETED"} and not name.startswith("high"):
                yield name

    async with contextlib.aclosing(watch(arena.connection, path, before.resource_version)) as events:
        yield seen(events)


async def names(arena: "Arena") -> set[str]:
    """Return who is there."""
    return {one["metadata"]["name"] for one in await arena.all(PODS)}


async def await_placed(arena: "Arena", size: int = WANTED, patience: float = 40.0) -> None:
    """Wait until all of the gang have a node."""

    async def placed() -> bool:
        return sum(bool(node) for name, node in (await arena.places()).items() if name.startswith("high")) == size

    await arena.until(placed, patience, "the gang's place")


async def await_end(arena: "Arena") -> None:
    """Wait until the gang is placed; all of the groups and two pods must have gone for it, and nobody else."""
    await await_placed(arena)
    left = Counter(name.rsplit("-", 1)[0] for name in await names(arena))
    assert {name: number for name, number in left.items() if name.startswith("whole")} == {}
    assert sum(number for name, number in left.items() if name.startswith("alone")) == 16 - (WANTED - 16)
    assert await arena.overcommitted() == {}


async def test_a_scheduler_that_is_killed_in_the_middle_of_evicting(arena: "Arena", record: dict[str, Any]) -> None:
    """Whomever it had told, nominated or deleted by then: the next one evicts the rest, and nobody else."""
    moments = random.Random(SEED)  # noqa: S311 - to be repeated
    told = record["kills while evicting"] = {"seed": SEED, "kills": CRASHES, "outcome": "not whole"}
    leader, standby = (arena.start(bindsInFlight=1) for _ in range(2))
    halves = 0
    for _ in range(CRASHES):
        await arena.create(*scene(arena))
        async with steps(arena) as seen:
            await arena.create(*gang(arena))
            for _ in range(moments.randrange(1, 2 * WANTED)):
                await anext(seen)
        leader.process.kill()
        halves += 0 < 32 + WANTED - len(await names(arena)) < WANTED
        leader, standby = standby, arena.start(bindsInFlight=1)
        await await_end(arena)
        for kind in (PODS, arena.pod_groups):
            await arena.connection.delete(kind.path(arena.namespace), {"gracePeriodSeconds": 0})
    assert halves >= CRASHES / 2, "the kills came too late or too early to show anything"
    told |= {"outcome": "whole", "halves": halves}


@contextlib.asynccontextmanager
async def barring(arena: "Arena", condition: str) -> AsyncIterator[None]:
    """Refuse to delete pods unless a condition holds, and the one called barred in any case."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]}]
    validations = [{"expression": f"request.name != 'barred' && {condition}", "message": "not this one"}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": validations, "failurePolicy": "Fail"}
    await arena.create((POLICIES, {"metadata": {"name": "bar"}, "spec": spec}))
    deny = {"policyName": "bar", "validationActions": ["Deny"]}
    await arena.create((BINDINGS, {"metadata": {"name": "bar"}, "spec": deny}))

    async def is_barred() -> bool:
        with contextlib.suppress(ApiError):
            options = {"gracePeriodSeconds": 0, "dryRun": ["All"]}
            await arena.connection.delete(PODS.path(arena.namespace, "barred"), options)
            return False
        return True

    async def is_free() -> bool:
        return not await is_barred()

    await arena.until(is_barred, what="the policy's refusal")
    yield
    await arena.connection.delete(f"{BINDINGS}/bar")
    await arena.connection.delete(f"{POLICIES}/bar")
    await arena.until(is_free, what="the end of the policy")


async def test_a_unit_of_which_one_pod_must_not_go_stays_whole(arena: "Arena") -> None:
    """The API server says so before anybody has been touched; others go, though they matter more."""
    replica = arena.start("--no-leader-elect")
    whole: Plain = {"disruptionMode": {"all": {}}, "priorityClassName": "least"}
    members = [runs(arena, f"cheap-{n}", NODES[n], matters="least", group="cheap", cpu="4") for n in range(3)]
    dear = [runs(arena, f"dear-{n}", NODES[3 + n], matters="dear", cpu="4") for n in range(2)]
    barred = runs(arena, "barred", NODES[5], matters="high", cpu="4")
    await arena.create(arena.group("cheap", 3, **whole), *members, *dear, barred, *wall(arena, *NODES[6:]))
    async with barring(arena, "request.name != 'cheap-2'"):
        await arena.create(*gang(arena, size=2, cpu="4"))
        await await_placed(arena, 2)
        assert {name for name in await names(arena) if "wall" not in name} == {
            *(f"cheap-{n}" for n in range(3)),
            *("barred", "high-0", "high-1"),
        }
        assert await arena.events("Preempted") == {"dear-0": 1, "dear-1": 1}
        assert "not this one" in replica.log_lines("plan broken")[0]["why"]
        told = [one["status"].get("conditions", ()) for one in await arena.all(PODS) if "cheap" in str(one["metadata"])]
        assert not any(one["type"] == "DisruptionTarget" for conditions in told for one in conditions)


async def test_a_victim_may_take_its_thirty_seconds(arena: "Arena") -> None:
    """Its room is kept, what is said stays, and nobody else goes; the gang is bound when it has ended, however soon."""
    replica = arena.start("--no-leader-elect")
    slow = runs(arena, "slow", NODES[0], matters="least", cpu="4", terminationGracePeriodSeconds=30)
    await arena.create(slow, *(runs(arena, f"other-{node}", node, cpu="4") for node in NODES[1:]))
    await arena.create(*gang(arena, size=4))
    await arena.until_told("high", "preempting 1 victims")
    await arena.create(arena.pod("lesser", priorityClassName="least"))
    await arena.until_told("lesser", "0/8 nodes")
    await asyncio.sleep(2.0)
    found = {one["metadata"]["name"]: one for one in await arena.all(PODS)}
    assert [name for name, one in found.items() if "deletionTimestamp" in one["metadata"]] == ["slow"]
    assert {found[f"high-{n}"]["status"].get("nominatedNodeName") for n in range(4)} == {NODES[0]}
    assert len(replica.log_lines("preempting")) == 1
    await arena.delete(PODS, "slow")
    await await_placed(arena, 4)
    assert await arena.events("Preempted") == {"slow": 1}


async def budget(arena: "Arena", name: str, labels: dict[str, str], allowed: int) -> None:
    """Have one pod of these labels be there always, and wait until the controller has counted."""
    path = f"/apis/policy/v1/namespaces/{arena.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    await arena.create((path, {"metadata": {"name": name}, "spec": spec}))
    await arena.until(lambda: allows(arena, name, allowed), what=f"a count of {name}")


async def allows(arena: "Arena", name: str, allowed: int) -> bool:
    """Tell whether the controller says that so many may go."""
    path = f"/apis/policy/v1/namespaces/{arena.namespace}/poddisruptionbudgets/{name}"
    status: Plain = msgspec.json.decode(await arena.connection.get(path)).get("status", {})
    healthy = status.get("currentHealthy", 0) > 0
    return healthy and bool(status.get("disruptionsAllowed", 0) == allowed)


async def test_two_plans_do_not_use_the_same_allowance(arena: "Arena") -> None:
    """As the controller counts: of two pods of which one may go, the one goes that another budget does not hold."""
    arena.start("--no-leader-elect")
    for number, labels in enumerate(({"app": "foo", "tier": "x"}, {"app": "foo"})):
        path, made = runs(arena, f"foo-{number}", NODES[number], cpu="4")
        made["metadata"]["labels"] = labels
        await arena.create((path, made))
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        status = PODS.path(arena.namespace, f"foo-{number}", "status")
        await arena.connection.patch(status, {"status": ready}, MERGE_PATCH)
    await arena.create(runs(arena, "dear", NODES[2], matters="dear", cpu="4"), *wall(arena, *NODES[3:]))
    await budget(arena, "app", {"app": "foo"}, 1)
    await budget(arena, "tier", {"tier": "x"}, 0)
    await arena.create(*(arena.pod(f"high-{n}", priorityClassName="high", cpu="4") for n in range(2)))
    await await_placed(arena, 2)
    assert {name for name in await names(arena) if "wall" not in name} == {"foo-0", "high-0", "high-1"}
    await arena.until(lambda: allows(arena, "app", 0), what="a new count")


async def test_the_api_server_goes_in_the_middle_of_evicting(arena: "Arena") -> None:
    """What had been begun is ended when it is back, and nobody else goes."""
    replica = arena.start("--no-leader-elect", bindsInFlight=1)
    await arena.until_said(replica, "ready")
    await arena.create(*scene(arena))
    async with steps(arena) as seen:
        await arena.create(*gang(arena))
        for _ in range(WANTED):
            await anext(seen)
        await asyncio.to_thread(arena.cluster.kill_component, "apiserver")
    await arena.until(lambda: replica.log_lines("eviction failed"), what="a failure")
    await asyncio.to_thread(arena.cluster.start_component, "apiserver")
    await await_end(arena)
    assert (replica.process.alive, len(replica.log_lines("preempting"))) == (True, 1)
