"""Malformed and extreme objects that the API server accepts do not affect other units."""

from typing import TYPE_CHECKING, Any

import pytest

from cpg_client.connection import MERGE_PATCH
from cpg_client.resources import CPG_POD_GROUPS, NODES, PODS

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import CreateRequest, Testbed

pytestmark = pytest.mark.e2e

MAX_GROWTH_MB = 80
"""For pods with 40,000 names of resources in sum: 50 MB for the objects, 107 MB when each name had a column."""
MANY = {f"example.com/label-{number}": f"value-{number}" for number in range(1000)}
TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "absent"}}}
SPREAD = {"maxSkew": 1, "topologyKey": "there/is-none", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
ODD_PODS: dict[str, dict[str, Any]] = {
    "endless": {"cpu": "9E"},
    "tiny": {"cpu": "1n"},
    "nowhere": {"nodeSelector": {"there/is": "none"}},
    "gated": {"schedulingGates": [{"name": "example.com/never"}]},
    "tolerant": {"tolerations": [{"operator": "Exists"}, {"key": "a", "operator": "Equal", "value": "b"}] * 200},
    "lonely": {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM] * 50}}},
    "spread": {"topologySpreadConstraints": [SPREAD]},
    "odd-node": {
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "number", "operator": "Gt", "values": ["123"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["absent"]}]},
                        {},
                    ]
                }
            }
        }
    },
    "overhead": {"runtimeClassName": "absent-or-refused"},
    "orphan": {"group": "there-is-no-such-group"},
}


async def create_odd_pods(testbed: "Testbed") -> list[str]:
    """Create odd pods and groups; return the pending pods that the API server has accepted."""
    await testbed.create(
        testbed.composite("ring-a", 1, parent="ring-b"),
        testbed.composite("ring-b", 1, parent="ring-a"),
        testbed.composite("myself", 1, parent="myself"),
        *(testbed.composite(f"deep-{number}", 1, parent=f"deep-{number + 1}") for number in range(30)),
        testbed.group("in-a-ring", 1, parent="ring-a"),
        testbed.group("too-deep", 1, parent="deep-0"),
        testbed.group("greedy", 2147483647),
        *(testbed.pod(f"member-{name}", group=name) for name in ("in-a-ring", "too-deep", "greedy")),
    )
    path, labelled = testbed.pod("labelled", cpu="99")
    labelled["metadata"]["labels"] |= MANY
    labelled["metadata"]["annotations"] = {f"a{number}": "x" * 1000 for number in range(200)}
    await testbed.create((path, labelled))
    await testbed.try_to_create(*(testbed.pod(name, **spec) for name, spec in ODD_PODS.items()))
    return [name for name, node in (await testbed.pod_nodes()).items() if not node]


async def create_odd_nodes(testbed: "Testbed") -> None:
    """Create nodes with extreme amounts, taints, labels and images; the test deletes them."""
    statuses: dict[str, dict[str, Any]] = {
        "bare": {},
        "giant": {"allocatable": {"cpu": "9E", "memory": "9E", "pods": "9E"}, "capacity": {"cpu": "9E"}},
        "fraction": {"allocatable": {"cpu": "1n", "memory": "0.0001", "pods": "0", "a/b": "1"}},
        "noisy": {"images": [{"names": [f"i{number}"], "sizeBytes": 2**62} for number in range(50)]},
    }
    taints = [{"key": f"t{number}", "value": "v", "effect": "NoSchedule"} for number in range(500)]
    for name, status in statuses.items():
        await testbed.create(
            (
                NODES.path(),
                {"metadata": {"name": f"odd-{name}", "labels": MANY}, "spec": {"taints": taints}, "status": status},
            )
        )


async def test_odd_objects_do_not_delay_valid_trees(testbed: "Testbed") -> None:
    """Valid trees are bound within 5 s while odd objects come, change and go; every pending pod has a condition."""
    replica = testbed.start_replica("--no-leader-elect")
    await testbed.wait_for_log(replica, "ready")
    pending = await create_odd_pods(testbed)
    try:
        await create_odd_nodes(testbed)
        await testbed.create(*testbed.tree("valid"))
        await testbed.wait_until(lambda: any(line["binds"] == 16 for line in replica.log_lines("bound")), 5)
        await testbed.wait_for_pod_conditions()
        for name in pending:
            patch = {
                "metadata": {"labels": {"changed": "yes"}, "annotations": {"scheduling.cpg.dev/pod-group": "?" * 99}}
            }
            await testbed.connection.patch(PODS.path(testbed.namespace, name), patch, MERGE_PATCH)
        await testbed.delete(CPG_POD_GROUPS, "in-a-ring")
        await testbed.create(*testbed.tree("later"))
        await testbed.wait_until(lambda: len(replica.log_lines("bound")) >= 2, 5)
    finally:
        for one in await testbed.list_objects(NODES):
            if one["metadata"]["name"].startswith("odd-"):
                await testbed.delete(NODES, one["metadata"]["name"])
    assert replica.process.is_running
    assert replica.log_lines("attempt failed") == []


def inventive(testbed: "Testbed", name: str, count: int) -> "CreateRequest":
    """Return a pod that requests so many resources that no node offers, in names of its own."""
    amounts = {f"{name}.example.com/r{number}": "1" for number in range(count)}
    container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    return testbed.pod(name, containers=[container])


async def test_invented_resources_take_no_memory_of_others(testbed: "Testbed") -> None:
    """Pods with 40,000 names in sum take little memory and delay no tree; one is bound once a node has its resource."""
    replica = testbed.start_replica("--no-leader-elect")
    await testbed.wait_for_log(replica, "ready")
    await testbed.create(*testbed.tree("first"))
    await testbed.wait_until(lambda: any(line["binds"] == 16 for line in replica.log_lines("bound")), 10)
    before = replica.resident()
    await testbed.create(*(inventive(testbed, f"odd-{number}", 2000) for number in range(20)))
    await testbed.create(inventive(testbed, "modest", 1))
    await testbed.wait_for_message("modest", "Insufficient modest.example.com/r0")
    await testbed.wait_for_pod_conditions(30)
    assert replica.resident() - before < MAX_GROWTH_MB
    await testbed.create(*testbed.tree("second"))
    await testbed.wait_until(lambda: len(replica.log_lines("bound")) >= 2, 5)
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "9", "modest.example.com/r0": "1"}
    node = {"metadata": {"name": "odd-offer"}, "status": {"allocatable": amounts, "capacity": amounts}}
    await testbed.create((NODES.path(), node))
    try:

        async def is_bound() -> bool:
            return (await testbed.pod_nodes())["modest"] == "odd-offer"

        await testbed.wait_until(is_bound, 10, "bind of the pod whose resource a node offers now")
    finally:
        await testbed.delete(NODES, "odd-offer")
