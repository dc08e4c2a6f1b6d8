"""Failures in the middle of evictions: units are evicted as a whole or stay, and no pod is evicted in vain.

The cluster is full: four groups that are evicted as a whole, and single pods of higher priority. A gang needs the room
of all four groups and of two single pods, so any other result is a defect.
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
    from tests.e2e.scheduler.crashes.conftest import CreateRequest, Testbed

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
def crash_cluster() -> Iterator[Cluster]:
    """Run a cluster with the controller that updates budgets."""
    with Cluster(ClusterSpec(components=("controller-manager",), nodes=(NodePool.parse("8 nodes, cpu=4"),))) as cluster:
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        classes = [{**kind, "metadata": {"name": name}, "value": value} for name, value in CLASSES.items()]
        text = msgspec.json.encode({"apiVersion": "v1", "kind": "List", "items": classes}).decode()
        cluster.kubectl("apply", "-f", "-", input=text)
        yield cluster


def runs(
    testbed: "Testbed", name: str, node: str, *, matters: str = "low", group: str = "", **spec: Any
) -> "CreateRequest":
    """Return a pod that runs on a node."""
    spec.setdefault("terminationGracePeriodSeconds", 0)
    return testbed.pod(name, group=group, nodeName=node, priorityClassName=matters, **spec)


def wall(testbed: "Testbed", *nodes: str) -> list["CreateRequest"]:
    """Return pods that fill nodes and are no victims."""
    return [runs(testbed, f"wall-{node}", node, matters="high", cpu="4") for node in nodes]


def scene(testbed: "Testbed") -> list["CreateRequest"]:
    """Return groups that are evicted as a whole, each on four nodes, and single pods on the other four."""
    wholes = [f"whole-{letter}" for letter in "abcd"]
    whole: Plain = {"disruptionMode": {"all": {}}, "priorityClassName": "least"}
    return [
        *(testbed.group(name, WHOLE, **whole) for name in wholes),
        *(runs(testbed, f"{name}-{n}", NODES[n], matters="least", group=name) for name in wholes for n in range(WHOLE)),
        *(runs(testbed, f"alone-{n}-{m}", NODES[4 + n]) for n in range(4) for m in range(4)),
    ]


def gang(testbed: "Testbed", name: str = "high", size: int = WANTED, cpu: str = "1") -> list["CreateRequest"]:
    """Return the gang that preempts them."""
    pods = (testbed.pod(f"{name}-{n}", group=name, priorityClassName="high", cpu=cpu) for n in range(size))
    return [testbed.group(name, size, priorityClassName="high"), *pods]


@contextlib.asynccontextmanager
async def completing_deletions(testbed: "Testbed") -> AsyncIterator[None]:
    """Delete terminating pods once more, as their kubelet would.

    If its client is killed between the two steps of a deletion, the API server leaves the pod terminating.
    """

    async def complete() -> None:
        while True:
            for one in await testbed.list_objects(PODS):
                if "deletionTimestamp" in one["metadata"]:
                    with contextlib.suppress(ApiError):
                        path = PODS.path(testbed.namespace, one["metadata"]["name"])
                        await testbed.connection.delete(path, {"gracePeriodSeconds": 0})
            await asyncio.sleep(1.0)

    completing = asyncio.create_task(complete())
    yield
    completing.cancel()
    await asyncio.wait({completing})


@contextlib.asynccontextmanager
async def steps(testbed: "Testbed") -> AsyncIterator[AsyncIterator[str]]:
    """Yield the names of running pods, whenever one of them changes or is deleted."""
    path = PODS.path(testbed.namespace)
    before = await list_all(testbed.connection, path)

    async def seen(events: AsyncIterator[WatchEvent]) -> AsyncIterator[str]:
        async for event in events:
            name: str = msgspec.json.decode(event.object)["metadata"].get("name", "high")  # a bookmark has none
            if event.type in {"MODIFIED", "DELETED"} and not name.startswith("high"):
                yield name

    async with contextlib.aclosing(watch(testbed.connection, path, before.resource_version)) as events:
        yield seen(events)


async def names(testbed: "Testbed") -> set[str]:
    """Return the names of all pods."""
    return {one["metadata"]["name"] for one in await testbed.list_objects(PODS)}


async def await_placed(testbed: "Testbed", size: int = WANTED, seconds: float = 40.0) -> None:
    """Wait until all pods of the gang have a node."""

    async def placed() -> bool:
        return sum(bool(node) for name, node in (await testbed.pod_nodes()).items() if name.startswith("high")) == size

    await testbed.wait_until(placed, seconds, "the place of the gang")


async def await_end(testbed: "Testbed") -> None:
    """Wait until the gang is placed. All groups and two single pods must have been evicted, and no other pod."""
    await await_placed(testbed)
    left = Counter(name.rsplit("-", 1)[0] for name in await names(testbed))
    assert {name: number for name, number in left.items() if name.startswith("whole")} == {}
    assert sum(number for name, number in left.items() if name.startswith("alone")) == 16 - (WANTED - 16)
    assert await testbed.overcommitted_cpus() == {}


async def test_a_scheduler_that_is_killed_while_it_evicts(testbed: "Testbed", record: dict[str, Any]) -> None:
    """Whatever it had marked, nominated or deleted: the next one evicts the rest, and no other pod."""
    moments = random.Random(SEED)  # noqa: S311 - to be repeated
    told = record["kills while evicting"] = {"seed": SEED, "kills": CRASHES, "outcome": "not whole"}
    leader, standby = (testbed.start_replica(bindsInFlight=1) for _ in range(2))
    halves = 0
    for _ in range(CRASHES):
        await testbed.create(*scene(testbed))
        async with steps(testbed) as seen:
            await testbed.create(*gang(testbed))
            for _ in range(moments.randrange(1, 2 * WANTED)):
                await anext(seen)
        leader.process.kill()
        halves += 0 < 32 + WANTED - len(await names(testbed)) < WANTED
        leader, standby = standby, testbed.start_replica(bindsInFlight=1)
        async with completing_deletions(testbed):
            await await_end(testbed)
        for kind in (PODS, testbed.pod_groups):
            await testbed.connection.delete(kind.path(testbed.namespace), {"gracePeriodSeconds": 0})
    assert halves >= CRASHES / 2, "the kills came too late or too early"
    told |= {"outcome": "whole", "halves": halves}


@contextlib.asynccontextmanager
async def barring(testbed: "Testbed", condition: str) -> AsyncIterator[None]:
    """Refuse to delete pods unless a condition holds, and the pod called barred in any case."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["DELETE"]}]
    validations = [{"expression": f"request.name != 'barred' && {condition}", "message": "not this one"}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": validations, "failurePolicy": "Fail"}
    await testbed.create((POLICIES, {"metadata": {"name": "bar"}, "spec": spec}))
    deny = {"policyName": "bar", "validationActions": ["Deny"]}
    await testbed.create((BINDINGS, {"metadata": {"name": "bar"}, "spec": deny}))

    async def is_barred() -> bool:
        with contextlib.suppress(ApiError):
            options = {"gracePeriodSeconds": 0, "dryRun": ["All"]}
            await testbed.connection.delete(PODS.path(testbed.namespace, "barred"), options)
            return False
        return True

    async def is_free() -> bool:
        return not await is_barred()

    await testbed.wait_until(is_barred, what="the policy's refusal")
    yield
    await testbed.connection.delete(f"{BINDINGS}/bar")
    await testbed.connection.delete(f"{POLICIES}/bar")
    await testbed.wait_until(is_free, what="the end of the policy")


async def test_a_unit_with_a_refused_pod_stays(testbed: "Testbed") -> None:
    """The API server refuses it before any pod is evicted. Pods of higher priority are evicted instead."""
    replica = testbed.start_replica("--no-leader-elect")
    whole: Plain = {"disruptionMode": {"all": {}}, "priorityClassName": "least"}
    members = [runs(testbed, f"cheap-{n}", NODES[n], matters="least", group="cheap", cpu="4") for n in range(3)]
    dear = [runs(testbed, f"dear-{n}", NODES[3 + n], matters="dear", cpu="4") for n in range(2)]
    barred = runs(testbed, "barred", NODES[5], matters="high", cpu="4")
    await testbed.create(testbed.group("cheap", 3, **whole), *members, *dear, barred, *wall(testbed, *NODES[6:]))
    async with barring(testbed, "request.name != 'cheap-2'"):
        await testbed.create(*gang(testbed, size=2, cpu="4"))
        await await_placed(testbed, 2)
        assert {name for name in await names(testbed) if "wall" not in name} == {
            *(f"cheap-{n}" for n in range(3)),
            *("barred", "high-0", "high-1"),
        }
        assert await testbed.event_counts("Preempted") == {"dear-0": 1, "dear-1": 1}
        assert "not this one" in replica.log_lines("plan broken")[0]["why"]
        told = [
            one["status"].get("conditions", ())
            for one in await testbed.list_objects(PODS)
            if "cheap" in str(one["metadata"])
        ]
        assert not any(one["type"] == "DisruptionTarget" for conditions in told for one in conditions)


async def test_a_victim_may_use_its_grace_period(testbed: "Testbed") -> None:
    """Its room is reserved, the conditions stay, and no other pod is evicted. The gang is bound when it has ended."""
    replica = testbed.start_replica("--no-leader-elect")
    slow = runs(testbed, "slow", NODES[0], matters="least", cpu="4", terminationGracePeriodSeconds=30)
    await testbed.create(slow, *(runs(testbed, f"other-{node}", node, cpu="4") for node in NODES[1:]))
    await testbed.create(*gang(testbed, size=4))
    await testbed.wait_for_message("high", "preempting 1 victims")
    await testbed.create(testbed.pod("lesser", priorityClassName="least"))
    await testbed.wait_for_message("lesser", "0/8 nodes")
    await asyncio.sleep(2.0)
    found = {one["metadata"]["name"]: one for one in await testbed.list_objects(PODS)}
    assert [name for name, one in found.items() if "deletionTimestamp" in one["metadata"]] == ["slow"]
    assert {found[f"high-{n}"]["status"].get("nominatedNodeName") for n in range(4)} == {NODES[0]}
    assert len(replica.log_lines("preempting")) == 1
    await testbed.delete(PODS, "slow")
    await await_placed(testbed, 4)
    assert await testbed.event_counts("Preempted") == {"slow": 1}


async def budget(testbed: "Testbed", name: str, labels: dict[str, str], allowed: int) -> None:
    """Create a budget that keeps one pod of these labels, and wait until the controller has counted."""
    path = f"/apis/policy/v1/namespaces/{testbed.namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": labels}}
    await testbed.create((path, {"metadata": {"name": name}, "spec": spec}))
    await testbed.wait_until(lambda: allows(testbed, name, allowed), what=f"a count of {name}")


async def allows(testbed: "Testbed", name: str, allowed: int) -> bool:
    """Return whether the status of a budget allows so many disruptions."""
    path = f"/apis/policy/v1/namespaces/{testbed.namespace}/poddisruptionbudgets/{name}"
    status: Plain = msgspec.json.decode(await testbed.connection.get(path)).get("status", {})
    healthy = status.get("currentHealthy", 0) > 0
    return healthy and bool(status.get("disruptionsAllowed", 0) == allowed)


async def test_two_plans_do_not_share_the_allowance_of_a_budget(testbed: "Testbed") -> None:
    """As the controller counts: of two pods of which one may be evicted, the one is that no other budget covers."""
    testbed.start_replica("--no-leader-elect")
    for number, labels in enumerate(({"app": "foo", "tier": "x"}, {"app": "foo"})):
        path, made = runs(testbed, f"foo-{number}", NODES[number], cpu="4")
        made["metadata"]["labels"] = labels
        await testbed.create((path, made))
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        status = PODS.path(testbed.namespace, f"foo-{number}", "status")
        await testbed.connection.patch(status, {"status": ready}, MERGE_PATCH)
    await testbed.create(runs(testbed, "dear", NODES[2], matters="dear", cpu="4"), *wall(testbed, *NODES[3:]))
    await budget(testbed, "app", {"app": "foo"}, 1)
    await budget(testbed, "tier", {"tier": "x"}, 0)
    await testbed.create(*(testbed.pod(f"high-{n}", priorityClassName="high", cpu="4") for n in range(2)))
    await await_placed(testbed, 2)
    assert {name for name in await names(testbed) if "wall" not in name} == {"foo-0", "high-0", "high-1"}
    await testbed.wait_until(lambda: allows(testbed, "app", 0), what="a new count")


async def test_the_api_server_is_killed_while_pods_are_evicted(testbed: "Testbed") -> None:
    """When it is back, the started units are completed, and no other pod is evicted."""
    replica = testbed.start_replica("--no-leader-elect", bindsInFlight=1)
    await testbed.wait_for_log(replica, "ready")
    await testbed.create(*scene(testbed))
    async with steps(testbed) as seen:
        await testbed.create(*gang(testbed))
        for _ in range(WANTED):
            await anext(seen)
        await asyncio.to_thread(testbed.cluster.kill_component, "apiserver")
    await testbed.wait_until(lambda: replica.log_lines("eviction failed"), what="a failure")
    await asyncio.to_thread(testbed.cluster.start_component, "apiserver")
    await await_end(testbed)
    assert (replica.process.is_running, len(replica.log_lines("preempting"))) == (True, 1)
