"""Each format, as far as an API server does not judge it."""

from typing import Any

import pytest

from cpg_api.scheduling.names import ADOPT, POD_GROUP_LABEL
from cpg_cli.conversion.converter import FORMATS, convert_all
from cpg_cli.conversion.documents import ManifestDocument
from cpg_cli.conversion.formats import ConversionOptions
from cpg_cli.conversion.volcano import OF_GROUPS

Plain = dict[str, Any]
OPTIONS = ConversionOptions(tiers={"1": "rack", "spine": "block"})
POD: Plain = {"containers": [{"name": "main"}]}


def converted(plain: Plain, *names: str) -> tuple[list[Plain], list[str]]:
    """Convert one object, and return the results and the notes."""
    formats = [FORMATS[name] for name in names or FORMATS]
    found, notes = convert_all([ManifestDocument(plain, "the text")], formats, OPTIONS)
    return [one.plain for one in found], notes


def volcano_job(**spec: Any) -> Plain:
    """Return a Job of Volcano."""
    tasks = [
        {"name": "a", "replicas": 2, "template": {"spec": POD}},
        {"name": "b", "replicas": 4, "template": {"spec": POD}},
    ]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "uid": "1", "finalizers": ["x"], "labels": {"a": "b"}},
        "spec": {"tasks": tasks, **spec},
    }


def volcano_group(**spec: Any) -> Plain:
    """Return a PodGroup of Volcano."""
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}, "spec": spec}


def test_an_object_that_concerns_no_format_stays_as_it_is() -> None:
    """With its text."""
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": POD}
    found, notes = convert_all([ManifestDocument(plain, "the text")], FORMATS.values(), OPTIONS)
    assert (found, notes) == ([ManifestDocument(plain, "the text")], [])
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
    assert converted(priority) == ([priority], [])


def test_a_format_that_was_not_chosen_is_left_alone() -> None:
    """The object stays."""
    assert converted(volcano_group(minMember=2), "coscheduling") == ([volcano_group(minMember=2)], [])


def test_a_pod_names_its_group_by_our_label_and_our_scheduler() -> None:
    """A pod template keeps its owner from having a group made for it."""
    meta = {"name": "p", "labels": {"scheduling.x-k8s.io/pod-group": "g", "a": "b"}}
    (found,), _ = converted({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": POD})
    assert found["metadata"] == {"name": "p", "labels": {"a": "b", POD_GROUP_LABEL: "g"}}
    assert found["spec"] == {**POD, "schedulerName": "cpg-scheduler"}
    template = {"metadata": {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}, "spec": POD}
    job: Plain = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    (found,), _ = converted(job)
    assert found["spec"]["template"]["metadata"] == {
        "labels": {POD_GROUP_LABEL: "g"},
        "annotations": {ADOPT: "false"},
    }
    assert "metadata" in job["spec"]["template"], "the given object is not changed"


def test_a_name_too_long_for_a_label_becomes_an_annotation() -> None:
    """As the scheduler reads it."""
    spec = {**POD, "schedulingGroup": {"podGroupName": "g" * 64}}
    (found,), _ = converted({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    assert found["metadata"]["annotations"] == {POD_GROUP_LABEL: "g" * 64}
    assert "schedulingGroup" not in found["spec"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {"schedulingPolicy": {"gang": {"minCount": 1}}}),
        (
            {"minMember": 3, "networkTopology": {"highestTierAllowed": 1}},
            {
                "schedulingPolicy": {"gang": {"minCount": 3}},
                "schedulingConstraints": {"topology": [{"key": "rack"}]},
            },
        ),
        (
            {
                "minMember": 3,
                "networkTopology": {"mode": "soft", "highestTierName": "spine"},
                "priorityClassName": "high",
            },
            {
                "schedulingPolicy": {"gang": {"minCount": 3}},
                "schedulingConstraints": {"preferredTopology": [{"key": "block"}]},
                "priorityClassName": "high",
            },
        ),
    ],
)
def test_a_pod_group_of_volcano(spec: Plain, expected: Plain) -> None:
    """Tiers become node labels."""
    (found,), notes = converted(volcano_group(**spec))
    assert (found["apiVersion"], found["spec"], notes) == ("scheduling.cpg.dev/v1alpha3", expected, [])


def test_an_unknown_tier_and_queues_are_named() -> None:
    """Nothing is lost in silence."""
    _, notes = converted(volcano_group(queue="q", minTaskMember={"a": 1}, networkTopology={"highestTierAllowed": 3}))
    assert notes == [
        f"PodGroup g: spec.minTaskMember {OF_GROUPS['minTaskMember']}",
        "PodGroup g: spec.queue has no equivalent: use Kueue or a ResourceQuota",
        "PodGroup g: spec.networkTopology: tier 3 is no node label; name it by --tier 3=LABEL",
    ]


def test_a_job_of_volcano_becomes_a_jobset() -> None:
    """Its tasks are replicated jobs; what the API server has written is left out."""
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    job = volcano_job(
        minAvailable=6, policies=policies, maxRetry=5, ttlSecondsAfterFinished=9, priorityClassName="high"
    )
    (found,), notes = converted(job)
    assert (found["kind"], found["metadata"], notes) == ("JobSet", {"name": "train", "labels": {"a": "b"}}, [])
    assert found["spec"]["failurePolicy"] == {"maxRestarts": 5}
    assert found["spec"]["ttlSecondsAfterFinished"] == 9
    sizes = {one["name"]: one["template"]["spec"]["parallelism"] for one in found["spec"]["replicatedJobs"]}
    assert sizes == {"a": 2, "b": 4}
    pods = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pods == {
        **POD,
        "schedulerName": "cpg-scheduler",
        "restartPolicy": "OnFailure",
        "priorityClassName": "high",
    }


@pytest.mark.parametrize(
    ("minimums", "whole", "annotations", "notes"),
    [
        ((None, None), None, {}, 0),
        ((2, 4), 6, {}, 0),
        ((1, 1), 2, {"scheduling.cpg.dev/min-count": "1"}, 0),
        ((1, 2), None, {}, 1),
        ((None, None), 3, {}, 1),
    ],
)
def test_minimums_of_tasks(minimums: tuple[int | None, ...], whole: int | None, annotations: Plain, notes: int) -> None:
    """Equal ones become an annotation; what a JobSet cannot say is named."""
    job = volcano_job(**({"minAvailable": whole} if whole else {}))
    for task, minimum in zip(job["spec"]["tasks"], minimums, strict=True):
        if minimum:
            task["minAvailable"] = minimum
    (found,), said = converted(job)
    assert (found["metadata"].get("annotations", {}), len(said)) == (annotations, notes)


def test_what_a_jobset_cannot_say_is_named() -> None:
    """Fields of the Job and of its tasks."""
    job = volcano_job(plugins={}, volumes=[], queue="q", minSuccess=1, policies=[{"action": "AbortJob"}])
    job["spec"]["tasks"][1] |= {"dependsOn": {"name": ["a", "c"]}, "topologyPolicy": "best-effort"}
    (found,), notes = converted(job)
    assert found["spec"]["replicatedJobs"][1]["dependsOn"] == [{"name": "a", "status": "Ready"}]
    fields = ("minSuccess", "plugins", "queue", "volumes", "topologyPolicy", "dependsOn", "policies")
    assert [one for one in fields if not any(f".{one}" in note for note in notes)] == []


@pytest.mark.parametrize(
    ("api_version", "kind"),
    [
        ("scheduling.volcano.sh/v1beta1", "Queue"),
        ("topology.volcano.sh/v1alpha1", "HyperNode"),
        ("scheduling.x-k8s.io/v1alpha1", "ElasticQuota"),
        ("scheduling.k8s.io/v1alpha1", "Workload"),
    ],
)
def test_what_has_no_equivalent_is_left_out_and_named(api_version: str, kind: str) -> None:
    """So that the output can be applied where the other scheduler is not installed."""
    found, (note,) = converted({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}})
    assert (found, note.startswith(f"{kind} x: left out")) == ([], True)


def test_labels_of_the_other_scheduler_that_stay_are_named() -> None:
    """They do no harm, and mean nothing."""
    meta = {"name": "p", "annotations": {"volcano.sh/task-spec": "a"}}
    plain = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**POD, "schedulerName": "volcano"}}
    (found,), notes = converted(plain)
    assert (found["spec"]["schedulerName"], notes) == (
        "cpg-scheduler",
        ["Pod p: volcano.sh/task-spec means nothing here"],
    )


@pytest.mark.parametrize("depth", [0, 2])
def test_claims_of_native_groups_are_noted(depth: int) -> None:
    """Kubernetes makes none for ours, whether a group has them or a template at some level."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    spec: Plain = {"resourceClaims": claims}
    for _ in range(depth):
        spec = {"podGroupTemplates": [spec]}
    kind = "Workload" if depth else "PodGroup"
    plain = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": kind, "metadata": {"name": "g"}, "spec": spec}
    (found,), (note,) = converted(plain)
    assert (found["spec"], "resourceClaims has no effect" in note) == (spec, True)
    assert converted({**plain, "spec": {}})[1] == []
