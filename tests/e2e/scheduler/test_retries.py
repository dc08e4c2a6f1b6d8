"""Retries of an unschedulable unit write nothing while the problem is the same."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from cpg_api.scheduling.names import EVENT_FAILED_SCHEDULING
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_engine.testing.scenario_expectations import Expected
from cpg_lab.clusters import Cluster

if TYPE_CHECKING:
    from tests.e2e.scheduler.conftest import LiveCluster

pytestmark = pytest.mark.e2e
RETRIES = 3


def attempts(log: Path, live: "LiveCluster") -> int:
    """Return the number of attempts for the tree."""
    lines = [line for line in log.read_text().splitlines() if f"{live.namespace}/root" in line and line.endswith("}")]
    return sum(msgspec.json.decode(line)["event"] == "attempt" for line in lines)


def test_retries_with_the_same_result_write_no_events(live: "LiveCluster", cluster: Cluster, scheduler: Path) -> None:
    """More room on a node requeues the tree. It still does not fit, so its conditions and events stay as they are."""
    live.put_node(node("n1", cpu=4))
    for group in (composite("root", gang=1), pod_group("pg", gang=5, parent="root")):
        live.put_group(group)
    for number in range(5):
        live.put_pod(pod(f"p-{number}", group="pg", cpu=1))
    condition = "False Unschedulable minCount (5) cannot be satisfied: room for 4 of 5 pods"
    expected = Expected(conditions={"root": condition, "pg": condition, "p-*": condition})
    assert live.await_expected(expected) == []
    events = sorted(live.events(EVENT_FAILED_SCHEDULING))
    earlier = attempts(scheduler, live)
    for more in range(1, RETRIES + 1):
        patch = msgspec.json.encode({"status": {"allocatable": {"cpu": f"{4000 + more}m"}}}).decode()
        cluster.kubectl("patch", "node", "n1", "--subresource=status", "--type=merge", "-p", patch)
        cluster.wait(lambda: attempts(scheduler, live) >= earlier + more, what="another attempt")  # noqa: B023 - called at once
    assert live.await_expected(expected) == []
    assert sorted(live.events(EVENT_FAILED_SCHEDULING)) == events
