"""A long outage of the API server, and broken watches: the process stays, and catches up."""

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.connection import JSON_PATCH

if TYPE_CHECKING:
    from tests.e2e.operator.crashes.conftest import Operators, Replica

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


async def health(operators: "Operators", name: str) -> object:
    """Return the health of a group."""
    return (await operators.testbed.condition("PodGroup", name, "Healthy")).get("reason")


async def metric(replica: "Replica", name: str) -> float:
    """Return the value of a metric."""
    page = (await asyncio.to_thread(replica.ask, "/metrics"))[1]
    return float(page.split(f"\n{name} ")[1].split()[0])


async def test_an_outage_does_not_end_the_process(operators: "Operators") -> None:
    """Refused requests for 18 s, then an error in all watches: changes meanwhile are known after both."""
    replica = await operators.start()
    await operators.until_leading(replica)
    for name in ("stays", "goes"):
        await operators.testbed.group(name)
        await operators.testbed.until("Pending", lambda name=name: health(operators, name))  # type: ignore[misc]
    replica.proxy.refuse = lambda _: 503
    replica.proxy.cut()
    began = time.monotonic()
    await operators.testbed.delete("PodGroup", "goes")
    await operators.testbed.group("comes")
    await operators.testbed.pod("member", "stays", "n1")
    await asyncio.sleep(OUTAGE / 2)
    status, why = await asyncio.to_thread(replica.ask, "/readyz")
    assert (status, "a watch has been failing" in why) == (503, True)
    await asyncio.sleep(OUTAGE - (time.monotonic() - began))
    replica.proxy.refuse = lambda _: 0
    await operators.until_leading(replica)
    await operators.testbed.until("Pending", lambda: health(operators, "comes"))
    await operators.testbed.running("member")
    await operators.testbed.until("MinimumMet", lambda: health(operators, "stays"))
    assert await metric(replica, "cpg_operator_kopf_restarts_total") == 0
    await replica.proxy.say(BROKEN)
    await operators.testbed.until(1, lambda: metric(replica, "cpg_operator_kopf_restarts_total"))
    await operators.testbed.group("later")
    await operators.testbed.until("Pending", lambda: health(operators, "later"))
    await operators.until_leading(replica)
    assert replica.process.is_running


async def test_a_lost_right_is_shown_until_it_is_back(operators: "Operators", operator: "ChartRelease") -> None:
    """By readiness, and by the silence of its watch, which grows while other watches receive events."""
    (role,) = (one for one in operator.of_kind("ClusterRole") if one["metadata"]["name"] == ROLE.rpartition("/")[2])
    replica = await operators.start()
    await operators.until_leading(replica)
    rules = [without_watch(rule) for rule in role["rules"]]
    await operators.testbed.connection.patch(ROLE, [{"op": "replace", "path": "/rules", "value": rules}], JSON_PATCH)
    try:
        replica.proxy.cut()

        async def is_shown() -> bool:
            status, why = await asyncio.to_thread(replica.ask, "/readyz")
            return status == 503 and "a watch has been failing" in why

        await operators.until("it is not ready", is_shown)
        silence = f'cpg_operator_watch_silence_seconds{{resource="{GROUPS}"}}'
        leaf = {"name": "leaf", "schedulingPolicy": {"basic": {}}}
        await operators.testbed.create("Workload", "later-watch", {"podGroupTemplates": [leaf]})

        async def others_receive_events() -> bool:
            return await metric(replica, silence.replace("podgroups", "workloads")) < 4

        await operators.until("other watches receive events", others_receive_events)

        async def it_is_silent() -> bool:
            return await metric(replica, silence) > 4

        await operators.until("its watch is silent", it_is_silent)
    finally:
        whole = [{"op": "replace", "path": "/rules", "value": role["rules"]}]
        await operators.testbed.connection.patch(ROLE, whole, JSON_PATCH)
    await operators.until_leading(replica)
    assert await metric(replica, silence) < 4
    await operators.testbed.group("later-watch")
    await operators.testbed.until("Pending", lambda: health(operators, "later-watch"))
    replica.process.kill()
    operators.replicas.remove(replica)  # it was refused something, as it should have been
    await replica.proxy.close()


def without_watch(rule: dict[str, Any]) -> dict[str, Any]:
    """Return a rule without the right to watch groups; the right to list them stays."""
    if "podgroups" not in rule["resources"]:
        return rule
    return {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "watch"]}
