"""A tenant with trees that are costly to decide leaves the scheduler to the others."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from cpg_api.core.affinity import TopologySpreadConstraint
from cpg_api.meta import LabelSelector
from cpg_client.resources import NAMESPACES, PODS
from cpg_engine.testing.api_manifests import pod_manifest
from cpg_engine.testing.builders import metadata, node, pod, pod_group
from cpg_lab.clusters import Cluster

if TYPE_CHECKING:
    from tests.e2e.scheduler.conftest import LiveCluster

pytestmark = pytest.mark.e2e
NODES, RACKS = 120, 24
TREES, MEMBERS = 30, 4
SECONDS, TURN_SECONDS = 20.0, 0.1
MAX_SHARE = 0.1
"""Of the time, for attempts at the trees; their real share is a tenth of it, but a busy machine stretches attempts."""


def create_tree(live: "LiveCluster", number: int) -> None:
    """Create a tree in one rack, with two pods that cannot be in one zone; each tree has a shape of its own."""
    name = f"tree-{number}"
    live.put_group(pod_group(name, gang=MEMBERS, key="rack"))
    for index in range(MEMBERS):
        is_strict = index >= MEMBERS - 2
        spread = TopologySpreadConstraint(
            max_skew=1 if is_strict else MEMBERS,
            min_domains=9 if is_strict else None,
            topology_key="zone",
            when_unsatisfiable="DoNotSchedule",
            label_selector=LabelSelector(match_labels={"tree": name}),
        )
        labels = {**pod("any", group=name).metadata.labels, "tree": name}
        meta = metadata(f"{name}-{index}", **labels)
        live.put_pod(pod(meta.name, cpu=f"{100 + number + index}m", meta=meta, topology_spread_constraints=(spread,)))


@pytest.fixture
def quiet(live: "LiveCluster", cluster: Cluster) -> Iterator[str]:
    """Return another namespace; its pods are deleted in the end."""
    name = f"q-{live.namespace}"
    live.client.create(NAMESPACES.path(), {"metadata": {"name": name}})
    yield name
    cluster.kubectl("delete", "pods", "--all", "-n", name, "--wait=false")


def hostile_seconds(log: Path, live: "LiveCluster") -> list[float]:
    """Return how long each attempt at a tree has taken."""
    lines = [line for line in log.read_text().splitlines() if f"{live.namespace}/tree-" in line and line.endswith("}")]
    found = map(msgspec.json.decode, lines)
    return [line["milliseconds"] / 1000 for line in found if line["event"] == "attempt"]


def test_trees_that_change_all_the_time_leave_the_scheduler_to_others(
    live: "LiveCluster", quiet: str, scheduler: Path
) -> None:
    """They fail, are all different and costly; pods of another namespace are bound meanwhile."""
    for number in range(NODES):
        live.put_node(node(f"n{number}", cpu=16, labels={"rack": f"r{number % RACKS}", "zone": f"z{number % 3}"}))
    live.flush()
    for number in range(TREES):
        create_tree(live, number)
    live.flush()
    earlier, began, turn = hostile_seconds(scheduler, live), time.monotonic(), 0
    while time.monotonic() < began + SECONDS:
        plain = pod_manifest(pod(f"p-{turn}", cpu=0.01), native=True)
        plain["metadata"]["namespace"] = quiet
        live.client.create(PODS.path(quiet), plain)
        changed = {"metadata": {"labels": {"turn": str(turn)}}}
        live.client.merge(live.path("Pod", f"tree-{turn % TREES}-0"), changed)
        time.sleep(TURN_SECONDS)
        turn += 1
    passed = time.monotonic() - began
    taken = hostile_seconds(scheduler, live)[len(earlier) :]
    pods = live.client.get(PODS.path(quiet))["items"]
    # The last of them may be on their way.
    assert all(one["spec"].get("nodeName") for one in pods[:-3])
    assert sum(taken) <= MAX_SHARE * passed
