"""A list of 130 namespaces: each has four watches of its own, which must leave connections for binds and lists."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import NAMESPACES, PODS

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
NAMES = [f"many-{number}" for number in range(130)]
MAX_SECONDS_UNTIL_BOUND = 15.0


async def test_pods_in_the_first_and_the_last_of_130_namespaces_are_placed(
    testbed: "Testbed", record_property: Callable[..., None]
) -> None:
    """With a leader election, which needs a connection too. A pod of another namespace is left alone."""
    await testbed.create(*((NAMESPACES.path(), {"metadata": {"name": name}}) for name in NAMES))
    began = time.monotonic()
    replica = testbed.start_replica(namespaces=NAMES, leaderElection={})
    await testbed.wait_for_log(replica, "ready", 60)
    await testbed.wait_until(lambda: replica.get("/readyz") == (200, "ok\n"))
    record_property("seconds until ready", round(time.monotonic() - began, 1))
    await testbed.create(testbed.pod("p"))
    foreign = testbed.namespace
    for testbed.namespace in (NAMES[0], NAMES[-1]):
        began = time.monotonic()
        await testbed.create(*testbed.tree("tree"))
        await testbed.wait_until_bound(16, MAX_SECONDS_UNTIL_BOUND)
        record_property(f"seconds until bound in {testbed.namespace}", round(time.monotonic() - began, 1))
    pods = await testbed.list_objects(PODS, everywhere=True)
    assert sum(bool(one["spec"].get("nodeName")) for one in pods) == 32
    for testbed.namespace in (foreign, NAMES[0], NAMES[-1]):
        await testbed.clean_up()
