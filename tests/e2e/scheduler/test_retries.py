"""What is said of somebody who is tried again and again."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from cpg_api.scheduling.names import EVENT_FAILED_SCHEDULING
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_engine.testing.scenario_expectations import Expected

Live = Any

pytestmark = pytest.mark.e2e
RETRIES = 3


def attempts(log: Path, live: Live) -> int:
    """Return how often the tree was tried."""
    lines = [line for line in log.read_text().splitlines() if f"{live.namespace}/root" in line and line.endswith("}")]
    return sum(msgspec.json.decode(line)["event"] == "attempt" for line in lines)


def test_retries_say_nothing_new(live: Live, cluster: Any, scheduler: Path) -> None:  # noqa: ANN401 - as fixtures are
    """Room that comes, and is not enough, has a tree tried again; and nobody in it is told so once more."""
    live.put_node(node("n1", cpu=4))
    for group in (composite("root", gang=1), pod_group("pg", gang=5, parent="root")):
        live.put_group(group)
    for number in range(5):
        live.put_pod(pod(f"p-{number}", group="pg", cpu=1))
    short = "False Unschedulable minCount (5) cannot be satisfied: room for 4 of 5 pods"
    expected = Expected(conditions={"root": short, "pg": short, "p-*": short})
    assert live.await_expected(expected) == []
    told = sorted(live._events(EVENT_FAILED_SCHEDULING))
    tried = attempts(scheduler, live)
    for more in range(1, RETRIES + 1):
        room = msgspec.json.encode({"status": {"allocatable": {"cpu": f"{4000 + more}m"}}}).decode()
        cluster.kubectl("patch", "node", "n1", "--subresource=status", "--type=merge", "-p", room)
        cluster.wait(lambda: attempts(scheduler, live) >= tried + more, what="another attempt")  # noqa: B023 - at once
    assert live.await_expected(expected) == []
    assert sorted(live._events(EVENT_FAILED_SCHEDULING)) == told
