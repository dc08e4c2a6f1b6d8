"""A gang whose members arrive one by one is placed as soon as there is room."""

import time
from typing import TYPE_CHECKING

import pytest

from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.scenario_expectations import Expected

if TYPE_CHECKING:
    from tests.e2e.scheduler.conftest import LiveCluster

pytestmark = pytest.mark.e2e
ARRIVALS = 8
MAX_SECONDS = 5.0
"""From the creation of the node to the last bind. Each failed attempt used to double the backoff, up to 17 s."""


@pytest.mark.parametrize("running", [0, 1])
def test_the_arrival_of_members_does_not_delay_their_binds(live: "LiveCluster", running: int) -> None:
    """Each arrival is an attempt without room; then a node joins that has room for all."""
    live.put_node(node("n1", cpu=1))
    live.put_group(pod_group("pg", gang=3))
    live.put_pod(pod("first", cpu=1, node_name="n1", group="pg" if running else None))
    for number in range(ARRIVALS):
        live.put_pod(pod(f"p-{number}", group="pg", cpu=1))
        live.flush()
        time.sleep(0.2)
    assert live.await_expected(Expected(conditions={"p-*": "False Unschedulable Insufficient cpu"})) == []
    live.put_node(node("n2", cpu=ARRIVALS))
    live.flush()
    began = time.monotonic()
    assert live.await_expected(Expected(bound={"pg": ARRIVALS + running})) == []
    assert time.monotonic() - began < MAX_SECONDS


def test_an_event_that_makes_room_ends_a_long_backoff(live: "LiveCluster") -> None:
    """The gang has failed again at each of several nodes that were too small for its last pod."""
    live.put_node(node("n0", cpu=1))
    live.put_group(pod_group("pg", gang=4))
    for number in range(4):
        live.put_pod(pod(f"p-{number}", group="pg", cpu=2))
    assert live.await_expected(Expected(conditions={"p-*": "False Unschedulable Insufficient cpu"})) == []
    for number in range(3):
        live.put_node(node(f"n{number + 1}", cpu=2))
        live.flush()
        time.sleep(2.5)
    live.put_node(node("last", cpu=2))
    live.flush()
    began = time.monotonic()
    assert live.await_expected(Expected(bound={"pg": 4})) == []
    assert time.monotonic() - began < MAX_SECONDS
