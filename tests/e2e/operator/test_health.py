"""Counts, domains, health and release on a real API server, whatever happens to pods, statuses and the operator."""

import asyncio
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.core.pod import Pod
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.partial_release import RELEASE_ANNOTATION
from cpg_client.connection import JSON_PATCH
from cpg_client.informers import Informers
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import NODES, PODS, STATUS
from cpg_client.stores import Added, Change, Modified, keep_whole

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import OperatorProcess, Testbed

pytestmark = pytest.mark.e2e

ROOT = ("CompositePodGroup", "root")
PROMISED = 2.0
"""Within this time the root counts a change of a pod."""
TREES, PODS_OF_A_TREE = 6, 6


async def tree(testbed: "Testbed", **root: Any) -> None:  # as JSON is
    """Create a root that needs both of its gangs of two, in one rack."""
    constraint = {"topology": [{"key": "rack"}]}
    await testbed.composite("root", 2, schedulingConstraints=constraint, **root)
    await testbed.group("a", 2, parent="root")
    await testbed.group("b", 2, parent="root")


async def standing(
    testbed: "Testbed", kind: str = "CompositePodGroup", name: str = "root"
) -> tuple[object, object, object, object]:
    """Return reason and message of the condition ``Healthy`` of a group, and its counts."""
    found = (await testbed.get(kind, name)).get("status", {})
    health: dict[str, Any] = next((one for one in found.get("conditions", []) if one["type"] == "Healthy"), {})
    pods = found.get("pods", {})
    return health.get("reason"), health.get("message"), pods.get("scheduled"), pods.get("running")


async def test_the_root_shows_the_health_of_its_tree(testbed: "Testbed") -> None:
    """From pending over partial and starting to the minimum, and back."""
    await tree(testbed)
    waiting = "0 of 2 groups ready, 2 short: PodGroup a: 0 of 0 pods running, 2 short"
    await testbed.until(("Pending", waiting, 0, 0), lambda: standing(testbed))

    for name in ("a1", "a2", "b1"):
        await testbed.pod(name, name[0], "n1")
    partial = "0 of 2 groups ready, 2 short: PodGroup a: 0 of 2 pods running, 2 short"
    await testbed.until(("Partial", partial, 3, 0), lambda: standing(testbed))
    assert (await testbed.condition(*ROOT, "Partial"))["status"] == "True"

    await testbed.pod("b2", "b", "n2")
    await testbed.until(("Starting", partial, 4, 0), lambda: standing(testbed))
    assert (await testbed.get(*ROOT))["status"]["domain"] == {"key": "rack", "value": "r1"}
    assert await testbed.condition(*ROOT, "Partial") == {}

    await testbed.running("a1", "a2", "b1", "b2")
    await testbed.until(("MinimumMet", "2 of 2 groups ready", 4, 4), lambda: standing(testbed))

    await testbed.delete("Pod", "b2")
    short = "1 of 2 groups ready, 1 short: PodGroup b: 1 of 1 pods running, 1 short"
    await testbed.until(("Partial", short, 3, 3), lambda: standing(testbed))

    await testbed.pod("b3", "b", "n3")
    await testbed.running("b3", phase="Succeeded")
    await testbed.until(("MinimumMet", "2 of 2 groups ready", 4, 4), lambda: standing(testbed))
    assert "domain" not in (await testbed.get(*ROOT))["status"]


class Ears:
    """When a watch first showed each number of running pods of a tree: by its pods, and by its root."""

    def __init__(self) -> None:
        """Start without events."""
        self.pods: defaultdict[str, list[float]] = defaultdict(list)
        self.roots: defaultdict[str, list[float]] = defaultdict(list)

    def on_pod(self, change: Change[Pod]) -> None:
        """Record a pod that has started; its name begins with the name of its tree."""
        if isinstance(change, Modified) and change.new.status.phase == "Running" != change.old.status.phase:
            self.pods[change.new.metadata.name.partition("-")[0]].append(time.monotonic())

    def on_root(self, change: Change[CompositePodGroup]) -> None:
        """Record how many running pods a root counts."""
        if isinstance(change, Added | Modified) and (counts := change.new.status.pods) is not None:
            counted = self.roots[change.new.metadata.name]
            counted += [time.monotonic()] * (counts.running - len(counted))

    def delays(self) -> list[float]:
        """Return how long after each pod its root counted it."""
        return [
            counted - seen
            for tree, pods in self.pods.items()
            for seen, counted in zip(pods, self.roots[tree], strict=False)
        ]


async def test_every_pod_is_counted_by_its_root_within_two_seconds(testbed: "Testbed") -> None:
    """In all trees at once while pods start one after the other, counted from the moment a watch shows the pod."""
    trees = [f"t{number}" for number in range(TREES)]
    names = [(f"{tree}-{number}", f"{tree}-{'ab'[number % 2]}") for number in range(PODS_OF_A_TREE) for tree in trees]
    for tree in trees:
        await testbed.composite(tree, 2)
        await asyncio.gather(*(testbed.group(f"{tree}-{leaf}", 3, parent=tree) for leaf in "ab"))
    await asyncio.gather(*(testbed.pod(name, group, "n1") for name, group in names))
    ears = Ears()
    of_pods = Source[Pod, Pod](resource=PODS, kind=Pod, project=keep_whole, namespace=testbed.namespace)
    of_roots = Source[CompositePodGroup, CompositePodGroup](
        resource=testbed.resource("CompositePodGroup"),
        kind=CompositePodGroup,
        project=keep_whole,
        namespace=testbed.namespace,
    )
    hearing = (
        Reflector(testbed.connection, of_pods, ears.on_pod),
        Reflector(testbed.connection, of_roots, ears.on_root),
    )
    async with Informers(*hearing) as informers:
        await informers.wait_synced()
        for name, _ in names:
            await testbed.running(name)
            await asyncio.sleep(0.08)

        async def counted_pods() -> int:
            return len(ears.delays())

        await testbed.until(len(names), counted_pods)
    assert max(ears.delays()) < PROMISED


async def test_a_burst_causes_few_writes(testbed: "Testbed") -> None:
    """Sixty pods that start one after the other change the status of their group a few times only."""
    await testbed.group("a", 60)
    await asyncio.gather(*(testbed.pod(f"p{number}", "a", "n1") for number in range(60)))
    await asyncio.gather(*(testbed.running(f"p{number}") for number in range(60)))
    await testbed.until(("MinimumMet", "60 of 60 pods running", 60, 60), lambda: standing(testbed, "PodGroup", "a"))
    found = await testbed.get("PodGroup", "a")
    writers = {one["manager"] for one in found["metadata"]["managedFields"]}
    assert "cpg-operator" in writers
    assert not [key for key in found["metadata"].get("annotations", {}) if "kopf" in key]


async def test_the_native_flavour_gets_what_its_schema_has(native: "Testbed") -> None:
    """The condition, on both kinds; only our own flavour has counts."""
    await native.composite("root", 1)
    await native.group("a", 1, parent="root")
    await native.pod("p", "a", "n1")
    await native.running("p")
    met = ("MinimumMet", "1 of 1 groups ready", None, None)
    await native.until(met, lambda: standing(native))
    await native.until(("MinimumMet", "1 of 1 pods running", None, None), lambda: standing(native, "PodGroup", "a"))
    await native.group("b", 1, parent="root", workload="v")

    async def reason() -> object:
        return (await native.scheduled("PodGroup", "b")).get("reason")

    await native.until("Invalid", reason)


async def test_a_missing_report_of_the_placement_is_added(testbed: "Testbed") -> None:
    """Where the scheduler died before its report, and where a user has erased the status."""
    await testbed.group("a", 1)
    await testbed.pod("p", "a", "n1")
    await testbed.running("p")

    async def placed() -> object:
        return (await testbed.scheduled("PodGroup", "a")).get("status")

    await testbed.until("True", placed)
    path = testbed.resource("PodGroup").path(testbed.namespace, "a", STATUS)
    await testbed.connection.patch(path, [{"op": "remove", "path": "/status"}], JSON_PATCH)
    await testbed.until(("MinimumMet", "1 of 1 pods running", 1, 1), lambda: standing(testbed, "PodGroup", "a"))
    await testbed.until("True", placed)


async def test_a_foreign_status_is_corrected(testbed: "Testbed") -> None:
    """Counts and health that another manager has taken over become right again."""
    await testbed.group("a", 1)
    waiting = ("Pending", "0 of 0 pods running, 1 short", 0, 0)
    await testbed.until(waiting, lambda: standing(testbed, "PodGroup", "a"))
    lie = {
        "type": "Healthy",
        "status": "True",
        "reason": "Fine",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"conditions": [lie], "pods": {"desired": 7, "scheduled": 7, "running": 7}}
    await testbed.apply_status("PodGroup", "a", status, "foreign")
    await testbed.until(waiting, lambda: standing(testbed, "PodGroup", "a"))


async def test_foreign_additions_to_our_status_are_removed(testbed: "Testbed") -> None:
    """A domain without a constraint, and ``Partial`` on a tree that is not partial; other fields stay."""
    await testbed.group("a", 1)
    await testbed.pod("p", "a", "n1")
    await testbed.running("p")
    met = ("MinimumMet", "1 of 1 pods running", 1, 1)
    await testbed.until(met, lambda: standing(testbed, "PodGroup", "a"))
    lie = {"status": "True", "reason": "Lie", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{"type": "Partial", **lie}, {"type": "Other", **lie}]
    domain = {"key": "rack", "value": "wrong"}
    await testbed.apply_status("PodGroup", "a", {"conditions": conditions, "domain": domain}, "foreign")

    async def left() -> tuple[object, list[str]]:
        status = (await testbed.get("PodGroup", "a"))["status"]
        return status.get("domain"), sorted(one["type"] for one in status["conditions"])

    await testbed.until((None, ["Healthy", "Other", "PodGroupInitiallyScheduled"]), left)
    assert await standing(testbed, "PodGroup", "a") == met


async def test_a_node_may_be_registered_again_in_another_rack(testbed: "Testbed") -> None:
    """Its pods have not changed; while the node is missing, their domain is unknown."""
    await testbed.group("a", schedulingConstraints={"topology": [{"key": "rack"}]})
    await testbed.pod("p", "a", "again")

    async def domain() -> object:
        return (await testbed.get("PodGroup", "a")).get("status", {}).get("domain", {}).get("value")

    for rack in ("r1", "r2"):
        node = {"metadata": {"name": "again", "labels": {"rack": rack}}}
        await testbed.connection.post(NODES.path(), node)
        await testbed.until(rack, domain)
        await testbed.connection.delete(NODES.path(name="again"))
        if rack == "r2":
            await testbed.until(None, domain)


async def test_malformed_objects_concern_no_other(testbed: "Testbed") -> None:
    """Pods that name two groups, none, or a missing one; a group that is its own parent."""
    await testbed.composite("own", parent="own")
    await testbed.pod("empty", "")
    await testbed.pod("lost", "nowhere")
    label = "scheduling.cpg.dev/pod-group"
    spec = {"containers": [{"name": "main", "image": "none"}]}
    await testbed.create("Pod", "torn", spec, labels={label: "a"}, annotations={label: "b"})
    await testbed.group("a", 1)
    await testbed.pod("p", "a", "n1")
    await testbed.running("p")
    await testbed.until(("MinimumMet", "1 of 1 pods running", 1, 1), lambda: standing(testbed, "PodGroup", "a"))


async def test_a_partial_tree_is_released_on_request(testbed: "Testbed") -> None:
    """After the time in the annotation its pods are deleted, with one event; without a time nothing is."""
    await tree(testbed, annotations={RELEASE_ANNOTATION: "1s"})
    await testbed.group("kept", 2)
    for name, group in (("a1", "a"), ("a2", "a"), ("k1", "kept")):
        await testbed.pod(name, group, "n1")
    await testbed.until(("Pending", "0 of 0 pods running", 0), lambda: released(testbed))
    await testbed.until(["root"], lambda: testbed.events("Released"))
    left = standing(testbed, "PodGroup", "kept")
    assert await left == ("Partial", "0 of 1 pods running, 2 short", 1, 0)


async def released(testbed: "Testbed") -> object:
    """Return the health of the first gang."""
    reason, message, scheduled, _ = await standing(testbed, "PodGroup", "a")
    return reason, str(message).split(",")[0], scheduled


async def test_a_priority_is_filled_in_once(testbed: "Testbed") -> None:
    """From the class, or zero without one; after that the API server keeps it immutable."""
    await testbed.composite("root", priorityClassName="high")
    await testbed.group("a", 1, parent="root", priorityClassName="high")
    await testbed.create("PodGroup", "alone", {"schedulingPolicy": {"gang": {"minCount": 1}}})

    async def priorities() -> list[object]:
        names = (ROOT, ("PodGroup", "a"), ("PodGroup", "alone"))
        return [(await testbed.get(*name))["spec"].get("priority") for name in names]

    await testbed.until([1000, 1000, 0], priorities)
    await testbed.until(
        ("Pending", "0 of 0 pods running, 1 short", 0, 0), lambda: standing(testbed, "PodGroup", "alone")
    )


async def test_changes_during_a_restart_are_found(testbed: "Testbed", operator: "OperatorProcess") -> None:
    """Killed and started again, the operator finds what was created, deleted and changed."""
    await tree(testbed)
    for name in ("a1", "a2", "b1", "b2"):
        await testbed.pod(name, name[0], "n1")
    await testbed.running("a1", "a2", "b1", "b2")
    await testbed.until(("MinimumMet", "2 of 2 groups ready", 4, 4), lambda: standing(testbed))
    operator.kill()
    await testbed.delete("PodGroup", "b")
    await testbed.delete("Pod", "a2")
    await testbed.group("c", 1, parent="root", workload="v")
    operator.start()
    message = "0 of 2 groups ready, 2 short: PodGroup a: 1 of 1 pods running, 1 short"
    await testbed.until(("Partial", message, 1, 1), lambda: standing(testbed))

    async def reason() -> object:
        return (await testbed.scheduled("PodGroup", "c"))["reason"]

    await testbed.until("Invalid", reason)
