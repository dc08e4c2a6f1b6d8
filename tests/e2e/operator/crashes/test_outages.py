"""An API server that refuses or breaks off for longer than anybody waits: the process lives, and catches up."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.connection import JSON_PATCH

if TYPE_CHECKING:
    from tests.e2e.operator.crashes.conftest import Replica, Ring

    from cpg_lab.charts import ChartRelease

pytestmark = pytest.mark.e2e

OUTAGE = 18.0
"""Seconds; Kopf once gave up after 15.5."""
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/kube-cpg:kube-cpg-operator"
GROUPS = "/apis/scheduling.cpg.dev/v1alpha3/podgroups"
BROKEN = {
    "type": "ERROR",
    "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500},
}


async def health(ring: "Ring", name: str) -> object:
    """Return what a group says of its health."""
    return (await ring.stage.condition("PodGroup", name, "Healthy")).get("reason")


async def metric(replica: "Replica", name: str) -> float:
    """Return a number of the page of metrics."""
    page = (await asyncio.to_thread(replica.ask, "/metrics"))[1]
    return float(page.split(f"\n{name} ")[1].split()[0])


async def test_an_outage_is_waited_out_in_the_same_process(ring: "Ring") -> None:
    """Refused for 18 s, then broken off in all watches: what came and went meanwhile is known after both."""
    replica = await ring.start()
    await ring.until_leading(replica)
    for name in ("stays", "goes"):
        await ring.stage.group(name)
        await ring.stage.until("Pending", lambda name=name: health(ring, name))  # type: ignore[misc]
    replica.line.refuse = lambda _: 503
    replica.line.cut()
    began = time.monotonic()
    await ring.stage.delete("PodGroup", "goes")
    await ring.stage.group("comes")
    await ring.stage.pod("member", "stays", "n1")
    await asyncio.sleep(OUTAGE / 2)
    status, why = await asyncio.to_thread(replica.ask, "/readyz")
    assert (status, "a watch has been failing" in why) == (503, True)
    await asyncio.sleep(OUTAGE - (time.monotonic() - began))
    replica.line.refuse = lambda _: 0
    await ring.until_leading(replica)
    await ring.stage.until("Pending", lambda: health(ring, "comes"))
    await ring.stage.running("member")
    await ring.stage.until("MinimumMet", lambda: health(ring, "stays"))
    assert await metric(replica, "cpg_operator_kopf_restarts_total") == 0
    await replica.line.say(BROKEN)
    await ring.stage.until(1, lambda: metric(replica, "cpg_operator_kopf_restarts_total"))
    await ring.stage.group("later")
    await ring.stage.until("Pending", lambda: health(ring, "later"))
    await ring.until_leading(replica)
    assert replica.process.is_running


async def test_a_right_that_is_lost_is_told_until_it_is_back(ring: "Ring", operator: "ChartRelease") -> None:
    """By readiness, and by the silence of the watch that it was needed for, which grows while others are heard."""
    (role,) = (one for one in operator.of_kind("ClusterRole") if one["metadata"]["name"] == ROLE.rpartition("/")[2])
    replica = await ring.start()
    await ring.until_leading(replica)
    rules = [without_watch(rule) for rule in role["rules"]]
    await ring.stage.connection.patch(ROLE, [{"op": "replace", "path": "/rules", "value": rules}], JSON_PATCH)
    try:
        replica.line.cut()

        async def told() -> bool:
            status, why = await asyncio.to_thread(replica.ask, "/readyz")
            return status == 503 and "a watch has been failing" in why

        await ring.until("it is not ready", told)
        silence = f'cpg_operator_watch_silence_seconds{{resource="{GROUPS}"}}'
        leaf = {"name": "leaf", "schedulingPolicy": {"basic": {}}}
        await ring.stage.create("Workload", "heard", {"podGroupTemplates": [leaf]})

        async def others_are_heard() -> bool:
            return await metric(replica, silence.replace("podgroups", "workloads")) < 4

        await ring.until("other watches are heard", others_are_heard)
        assert await metric(replica, silence) > 4
    finally:
        whole = [{"op": "replace", "path": "/rules", "value": role["rules"]}]
        await ring.stage.connection.patch(ROLE, whole, JSON_PATCH)
    await ring.until_leading(replica)
    assert await metric(replica, silence) < 4
    await ring.stage.group("heard")
    await ring.stage.until("Pending", lambda: health(ring, "heard"))
    replica.process.kill()
    ring.replicas.remove(replica)  # it was refused something, as it should have been
    await replica.line.close()


def without_watch(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule that lets nobody watch groups; listing them is left."""
    if "podgroups" not in rule["resources"]:
        return rule
    return {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "watch"]}
