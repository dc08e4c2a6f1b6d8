"""Our kinds with kubectl."""

from typing import TYPE_CHECKING

import pytest

from cpg_lab.clusters import Cluster

if TYPE_CHECKING:
    from tests.e2e.api.conftest import Api

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

REF = {"workloadName": "train", "templateName": "t"}


async def test_a_new_group_is_pending_with_its_minimum(api: "Api", cluster: Cluster) -> None:
    """`kubectl get cpg,podgroups` shows a status before any attempt."""
    spec = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}, "workloadRef": REF}
    await api.create("CompositePodGroup", {"metadata": {"name": "root"}, "spec": spec})
    leaf = {"schedulingPolicy": {"gang": {"minCount": 4}}, "workloadRef": REF, "parentCompositePodGroupName": "root"}
    await api.create("PodGroup", {"metadata": {"name": "leaf"}, "spec": leaf})
    groups = table(cluster, "get", "cpg/root", "podgroup/leaf")
    assert groups == [
        "NAME STATUS MINIMUM GROUPS PODS SCHEDULED RUNNING HEALTH DOMAIN OWNER AGE",
        "compositepodgroup.scheduling.cpg.dev/root Pending 2",
        "NAME STATUS MINIMUM PODS SCHEDULED RUNNING HEALTH DOMAIN OWNER AGE",
        "podgroup.scheduling.cpg.dev/leaf Pending 4",
    ]


async def test_the_columns_show_the_status_of_a_group(api: "Api", cluster: Cluster) -> None:
    """Reason, counts, health and domain are columns; priority, parent, workload and blocker come with `-o wide`."""
    spec = {"schedulingPolicy": {"gang": {"minGroupCount": 2}}, "workloadRef": REF, "priority": 7}
    body = {"metadata": {"name": "placed"}, "spec": spec | {"parentCompositePodGroupName": "root"}}
    await api.create("CompositePodGroup", body)
    conditions = [
        {
            "type": kind,
            "status": "True",
            "reason": "Scheduled",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in ("CompositePodGroupInitiallyScheduled", "Healthy")
    ]
    status = {
        "conditions": conditions,
        "groups": {"desired": 3, "ready": 2},
        "pods": {"desired": 9, "scheduled": 8, "running": 1},
        "domain": {"key": "block", "value": "b1"},
        "attempt": {"finding": "NotFound", "blockedAt": {"kind": "PodGroup", "name": "leaf"}},
    }
    await api.change("CompositePodGroup", "placed", {"status": status}, "status")
    wide = table(cluster, "get", "cpg", "placed", "-o", "wide", age=False)
    assert wide == [
        "NAME STATUS MINIMUM GROUPS PODS SCHEDULED RUNNING HEALTH DOMAIN OWNER PRIORITY PARENT WORKLOAD BLOCKED",
        "placed Scheduled 2 2 9 8 1 Scheduled b1 7 root train leaf",
    ]


@pytest.mark.parametrize("name", ["cpg", "pg", "cwl", "kube-cpg"])
async def test_the_short_names_and_the_category_work(api: "Api", cluster: Cluster, name: str) -> None:
    """Each kind has a short name, and one category lists them all."""
    assert api.group in cluster.kubectl("get", name, "-o", "name").stdout or name == "cwl"


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("compositepodgroup.spec.schedulingPolicy.gang", "minGroupCount	<integer> -required-"),
        ("podgroup.spec.schedulingConstraints", "where that is possible"),
        (
            "workload.spec.compositePodGroupTemplates.compositePodGroupTemplates.podGroupTemplates.name",
            "inside the whole Workload",
        ),
        ("podgroup.status.pods", "Pods that have not failed and are not being deleted."),
    ],
)
async def test_explain_describes_the_fields(api: "Api", cluster: Cluster, field: str, words: str) -> None:
    """`kubectl explain` knows every level of the unrolled tree."""
    explained = cluster.kubectl("explain", field, f"--api-version={api.group}/v1alpha3").stdout
    assert words in explained


async def test_apply_twice_changes_nothing(api: "Api", cluster: Cluster) -> None:
    """Applying the same manifest again is no update, although the API server fills in fields."""
    manifest = f"""
apiVersion: {api.group}/v1alpha3
kind: PodGroup
metadata: {{name: applied}}
spec: {{schedulingPolicy: {{gang: {{minCount: 2}}}}}}
"""
    cluster.kubectl("apply", "-f", "-", input=manifest)
    await api.change("PodGroup", "applied", {"spec": {"priority": 7, "priorityClassName": "high"}})
    assert "unchanged" in cluster.kubectl("apply", "-f", "-", input=manifest).stdout


def table(cluster: Cluster, *arguments: str, age: bool = True) -> list[str]:
    """Return kubectl's table with single blanks, without the age of an object."""
    lines = [line.split() for line in cluster.kubectl(*arguments).stdout.splitlines() if line]
    if not age:
        return [" ".join(word for word in line if word != "AGE" and not is_age(word)) for line in lines]
    return [" ".join(word for word in line if not is_age(word)) for line in lines]


def is_age(word: str) -> bool:
    """Return whether a word is an age, as in `4s`."""
    return word.endswith("s") and word[:-1].isdigit()
