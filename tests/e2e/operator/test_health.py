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
    from tests.e2e.operator.conftest import Operator, Stage

pytestmark = pytest.mark.e2e

ROOT = ("CompositePodGroup", "root")
PROMISED = 2.0
"""Within this time the root counts a change of a pod."""
TREES, PODS_OF_A_TREE = 6, 6


async def tree(stage: "Stage", **root: Any) -> None:  # as JSON is
    """Create a root that needs both of its gangs of two, in one rack."""
    constraint = {"topology": [{"key": "rack"}]}
    await stage.composite("root", 2, schedulingConstraints=constraint, **root)
    await stage.group("a", 2, parent="root")
    await stage.group("b", 2, parent="root")


async def standing(
    stage: "Stage", kind: str = "CompositePodGroup", name: str = "root"
) -> tuple[object, object, object, object]:
    """Return reason and message of the condition ``Healthy`` of a group, and its counts."""
    found = (await stage.get(kind, name)).get("status", {})
    health: dict[str, Any] = next((one for one in found.get("conditions", []) if one["type"] == "Healthy"), {})
    pods = found.get("pods", {})
    return health.get("reason"), health.get("message"), pods.get("scheduled"), pods.get("running")


async def test_the_root_shows_the_health_of_its_tree(stage: "Stage") -> None:
    """From pending over partial and starting to the minimum, and back."""
    await tree(stage)
    waiting = "0 of 2 groups ready, 2 short: PodGroup a: 0 of 0 pods running, 2 short"
    await stage.until(("Pending", waiting, 0, 0), lambda: standing(stage))

    for name in ("a1", "a2", "b1"):
        await stage.pod(name, name[0], "n1")
    partial = "0 of 2 groups ready, 2 short: PodGroup a: 0 of 2 pods running, 2 short"
    await stage.until(("Partial", partial, 3, 0), lambda: standing(stage))
    assert (await stage.condition(*ROOT, "Partial"))["status"] == "True"

    await stage.pod("b2", "b", "n2")
    await stage.until(("Starting", partial, 4, 0), lambda: standing(stage))
    assert (await stage.get(*ROOT))["status"]["domain"] == {"key": "rack", "value": "r1"}
    assert await stage.condition(*ROOT, "Partial") == {}

    await stage.running("a1", "a2", "b1", "b2")
    await stage.until(("MinimumMet", "2 of 2 groups ready", 4, 4), lambda: standing(stage))

    await stage.delete("Pod", "b2")
    short = "1 of 2 groups ready, 1 short: PodGroup b: 1 of 1 pods running, 1 short"
    await stage.until(("Partial", short, 3, 3), lambda: standing(stage))

    await stage.pod("b3", "b", "n3")
    await stage.running("b3", phase="Succeeded")
    await stage.until(("MinimumMet", "2 of 2 groups ready", 4, 4), lambda: standing(stage))
    assert "domain" not in (await stage.get(*ROOT))["status"]


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
            heard = self.roots[change.new.metadata.name]
            heard += [time.monotonic()] * (counts.running - len(heard))

    def delays(self) -> list[float]:
        """Return how long after each pod its root counted it."""
        return [
            told - seen for tree, pods in self.pods.items() for seen, told in zip(pods, self.roots[tree], strict=False)
        ]


async def test_every_pod_is_counted_by_its_root_within_two_seconds(stage: "Stage") -> None:
    """In all trees at once while pods start one after the other, counted from the moment a watch shows the pod."""
    trees = [f"t{number}" for number in range(TREES)]
    names = [(f"{tree}-{number}", f"{tree}-{'ab'[number % 2]}") for number in range(PODS_OF_A_TREE) for tree in trees]
    for tree in trees:
        await stage.composite(tree, 2)
        await asyncio.gather(*(stage.group(f"{tree}-{leaf}", 3, parent=tree) for leaf in "ab"))
    await asyncio.gather(*(stage.pod(name, group, "n1") for name, group in names))
    ears = Ears()
    of_pods = Source[Pod, Pod](resource=PODS, kind=Pod, project=keep_whole, namespace=stage.namespace)
    of_roots = Source[CompositePodGroup, CompositePodGroup](
        resource=stage.resource("CompositePodGroup"),
        kind=CompositePodGroup,
        project=keep_whole,
        namespace=stage.namespace,
    )
    hearing = (Reflector(stage.connection, of_pods, ears.on_pod), Reflector(stage.connection, of_roots, ears.on_root))
    async with Informers(*hearing) as informers:
        await informers.wait_synced()
        for name, _ in names:
            await stage.running(name)
            await asyncio.sleep(0.08)

        async def told() -> int:
            return len(ears.delays())

        await stage.until(len(names), told)
    assert max(ears.delays()) < PROMISED


async def test_a_burst_causes_few_writes(stage: "Stage") -> None:
    """Sixty pods that start one after the other change the status of their group a few times only."""
    await stage.group("a", 60)
    await asyncio.gather(*(stage.pod(f"p{number}", "a", "n1") for number in range(60)))
    await asyncio.gather(*(stage.running(f"p{number}") for number in range(60)))
    await stage.until(("MinimumMet", "60 of 60 pods running", 60, 60), lambda: standing(stage, "PodGroup", "a"))
    found = await stage.get("PodGroup", "a")
    writers = {one["manager"] for one in found["metadata"]["managedFields"]}
    assert "cpg-operator" in writers
    assert not [key for key in found["metadata"].get("annotations", {}) if "kopf" in key]


async def test_the_native_flavour_gets_what_its_schema_has(native: "Stage") -> None:
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


async def test_a_missing_report_of_the_placement_is_added(stage: "Stage") -> None:
    """Where the scheduler died before its report, and where a user has erased the status."""
    await stage.group("a", 1)
    await stage.pod("p", "a", "n1")
    await stage.running("p")

    async def placed() -> object:
        return (await stage.scheduled("PodGroup", "a")).get("status")

    await stage.until("True", placed)
    path = stage.resource("PodGroup").path(stage.namespace, "a", STATUS)
    await stage.connection.patch(path, [{"op": "remove", "path": "/status"}], JSON_PATCH)
    await stage.until(("MinimumMet", "1 of 1 pods running", 1, 1), lambda: standing(stage, "PodGroup", "a"))
    await stage.until("True", placed)


async def test_a_foreign_status_is_corrected(stage: "Stage") -> None:
    """Counts and health that another manager has taken over become right again."""
    await stage.group("a", 1)
    waiting = ("Pending", "0 of 0 pods running, 1 short", 0, 0)
    await stage.until(waiting, lambda: standing(stage, "PodGroup", "a"))
    lie = {
        "type": "Healthy",
        "status": "True",
        "reason": "Fine",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"conditions": [lie], "pods": {"desired": 7, "scheduled": 7, "running": 7}}
    await stage.apply_status("PodGroup", "a", status, "somebody")
    await stage.until(waiting, lambda: standing(stage, "PodGroup", "a"))


async def test_foreign_additions_to_our_status_are_removed(stage: "Stage") -> None:
    """A domain without a constraint, and ``Partial`` on a tree that is not partial; other fields stay."""
    await stage.group("a", 1)
    await stage.pod("p", "a", "n1")
    await stage.running("p")
    met = ("MinimumMet", "1 of 1 pods running", 1, 1)
    await stage.until(met, lambda: standing(stage, "PodGroup", "a"))
    lie = {"status": "True", "reason": "Lie", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    conditions = [{"type": "Partial", **lie}, {"type": "Other", **lie}]
    domain = {"key": "rack", "value": "wrong"}
    await stage.apply_status("PodGroup", "a", {"conditions": conditions, "domain": domain}, "somebody")

    async def left() -> tuple[object, list[str]]:
        status = (await stage.get("PodGroup", "a"))["status"]
        return status.get("domain"), sorted(one["type"] for one in status["conditions"])

    await stage.until((None, ["Healthy", "Other", "PodGroupInitiallyScheduled"]), left)
    assert await standing(stage, "PodGroup", "a") == met


async def test_a_node_may_be_registered_again_in_another_rack(stage: "Stage") -> None:
    """Its pods have not changed; while the node is missing, their domain is unknown."""
    await stage.group("a", schedulingConstraints={"topology": [{"key": "rack"}]})
    await stage.pod("p", "a", "anew")

    async def domain() -> object:
        return (await stage.get("PodGroup", "a")).get("status", {}).get("domain", {}).get("value")

    for rack in ("r1", "r2"):
        node = {"metadata": {"name": "anew", "labels": {"rack": rack}}}
        await stage.connection.post(NODES.path(), node)
        await stage.until(rack, domain)
        await stage.connection.delete(NODES.path(name="anew"))
        if rack == "r2":
            await stage.until(None, domain)


async def test_malformed_objects_concern_no_other(stage: "Stage") -> None:
    """Pods that name two groups, none, or a missing one; a group that is its own parent."""
    await stage.composite("own", parent="own")
    await stage.pod("empty", "")
    await stage.pod("lost", "nowhere")
    label = "scheduling.cpg.dev/pod-group"
    spec = {"containers": [{"name": "main", "image": "none"}]}
    await stage.create("Pod", "torn", spec, labels={label: "a"}, annotations={label: "b"})
    await stage.group("a", 1)
    await stage.pod("p", "a", "n1")
    await stage.running("p")
    await stage.until(("MinimumMet", "1 of 1 pods running", 1, 1), lambda: standing(stage, "PodGroup", "a"))


async def test_a_partial_tree_is_released_on_request(stage: "Stage") -> None:
    """After the time in the annotation its pods are deleted, with one event; without a time nothing is."""
    await tree(stage, annotations={RELEASE_ANNOTATION: "1s"})
    await stage.group("kept", 2)
    for name, group in (("a1", "a"), ("a2", "a"), ("k1", "kept")):
        await stage.pod(name, group, "n1")
    await stage.until(("Pending", "0 of 0 pods running", 0), lambda: released(stage))
    await stage.until(["root"], lambda: stage.events("Released"))
    left = standing(stage, "PodGroup", "kept")
    assert await left == ("Partial", "0 of 1 pods running, 2 short", 1, 0)


async def released(stage: "Stage") -> object:
    """Return the health of the first gang."""
    reason, message, scheduled, _ = await standing(stage, "PodGroup", "a")
    return reason, str(message).split(",")[0], scheduled


async def test_a_priority_is_filled_in_once(stage: "Stage") -> None:
    """From the class, or zero without one; after that the API server keeps it immutable."""
    await stage.composite("root", priorityClassName="high")
    await stage.group("a", 1, parent="root", priorityClassName="high")
    await stage.create("PodGroup", "alone", {"schedulingPolicy": {"gang": {"minCount": 1}}})

    async def priorities() -> list[object]:
        names = (ROOT, ("PodGroup", "a"), ("PodGroup", "alone"))
        return [(await stage.get(*name))["spec"].get("priority") for name in names]

    await stage.until([1000, 1000, 0], priorities)
    await stage.until(("Pending", "0 of 0 pods running, 1 short", 0, 0), lambda: standing(stage, "PodGroup", "alone"))


async def test_changes_during_a_restart_are_found(stage: "Stage", operator: "Operator") -> None:
    """Killed and started again, the operator finds what was created, deleted and changed."""
    await tree(stage)
    for name in ("a1", "a2", "b1", "b2"):
        await stage.pod(name, name[0], "n1")
    await stage.running("a1", "a2", "b1", "b2")
    await stage.until(("MinimumMet", "2 of 2 groups ready", 4, 4), lambda: standing(stage))
    operator.kill()
    await stage.delete("PodGroup", "b")
    await stage.delete("Pod", "a2")
    await stage.group("c", 1, parent="root", workload="v")
    operator.start()
    message = "0 of 2 groups ready, 2 short: PodGroup a: 1 of 1 pods running, 1 short"
    await stage.until(("Partial", message, 1, 1), lambda: standing(stage))

    async def reason() -> object:
        return (await stage.scheduled("PodGroup", "c"))["reason"]

    await stage.until("Invalid", reason)
