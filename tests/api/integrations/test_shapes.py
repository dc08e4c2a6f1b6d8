"""The trees of owners: one table for each kind, from the owner's fields to the templates of its Workload."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from cpg_api.integrations import job, jobset, leaderworkerset, ray
from cpg_api.integrations.owners import MemberTemplateSpec
from cpg_api.integrations.policy import (
    DISRUPTION_MODE,
    MIN_COUNT,
    MIN_GROUPS,
    PREFERRED,
    REPLICA_BY,
    REPLICA_REQUIRED,
    REQUIRED,
    read_policy,
)
from cpg_api.integrations.trees import OwnerKind, Shape
from cpg_api.scheduling.names import ADOPT, GANG, SCHEDULER_NAME
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate

Plain = dict[str, Any]
OURS = {"spec": {"schedulerName": SCHEDULER_NAME}}
THEIRS = {"spec": {"schedulerName": "other"}}


def shape_of(kind: OwnerKind, spec: Plain, annotations: Mapping[str, str] | None = None, **fields: Any) -> Shape:
    """Return the shape of an owner."""
    plain = {"metadata": {"name": "o", "annotations": dict(annotations or {})}, "spec": spec, **fields}
    owner = msgspec.convert(plain, kind.type)
    return kind.shape(owner, read_policy(annotations or {}), frozenset({SCHEDULER_NAME}))


def text(template: PodGroupTemplate | CompositePodGroupTemplate) -> str:
    """Write a template as ``name*replicas minimum @topology !mode (children)``, without what is not set."""
    policy, found = template.scheduling_policy, template.name
    if template.replicas is not None:
        found += f"*{template.replicas}"
    if policy.gang is not None:
        found += f" {getattr(policy.gang, 'min_count', None) or getattr(policy.gang, 'min_group_count', None)}"
    constraints = template.scheduling_constraints
    if constraints is not None:
        found += "".join(f" @{one.key}" for one in constraints.topology or ())
        found += "".join(f" ~{one.key}" for one in constraints.preferred_topology or ())
    if template.disruption_mode is not None:
        found += " !all" if template.disruption_mode.all is not None else " !single"
    if template.priority_class_name:
        found += f" ^{template.priority_class_name}"
    if isinstance(template, CompositePodGroupTemplate):
        leaves, inner = template.pod_group_templates or (), template.composite_pod_group_templates or ()
        found += f" ({', '.join([*map(text, leaves), *map(text, inner)])})"
    return found


def tree(found: Shape) -> str:
    """Return the one tree of a shape without problems."""
    assert not found.problems
    assert found.spec is not None
    (top,) = found.spec.pod_group_templates or found.spec.composite_pod_group_templates or ()
    return text(top)


def jobs(**replicas: int) -> Plain:
    """Return replicated jobs of two pods each."""
    return {"replicatedJobs": [replicated(name, number) for name, number in replicas.items()]}


def replicated(name: str, replicas: int = 1, size: int = 2, template: Plain = OURS, **fields: Any) -> Plain:
    """Return a replicated job."""
    spec = {"parallelism": size, "completions": size, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **fields}


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        (jobs(a=2), {}, "root 1 (a-jobs 2 (a*2 2))"),
        (jobs(a=2, b=1), {}, "root 2 (a-jobs 2 (a*2 2), b-jobs 1 (b*1 2))"),
        (jobs(root=1), {}, "root-2 1 (root-jobs 1 (root*1 2))"),
        (jobs(a=0, b=1), {}, "root 1 (a-jobs 1 (a*0 2), b-jobs 1 (b*1 2))"),
        (
            jobs(a=2),
            {REQUIRED: "block", REPLICA_REQUIRED: "rack", DISRUPTION_MODE: "all"},
            "root 1 @block !all (a-jobs 2 !all (a*2 2 @rack !all))",
        ),
        (jobs(a=2, b=2), {MIN_GROUPS: "1", MIN_COUNT: "1"}, "root 1 (a-jobs 2 (a*2 1), b-jobs 2 (b*2 1))"),
        (jobs(a=2, b=2), {REPLICA_BY: "job-index"}, "root 2 (replica*2 2 (a 2, b 2))"),
        (jobs(a=2), {PREFERRED: "rack"}, "root 1 ~rack (a-jobs 2 (a*2 2))"),
        (
            {"replicatedJobs": [replicated("a"), replicated("b", dependsOn=[{"name": "a", "status": "Complete"}])]},
            {},
            "root 1 (a-jobs 1 (a*1 2), b-jobs 1 (b*1 2))",
        ),
        (
            {**jobs(a=1, b=1), "startupPolicy": {"startupPolicyOrder": "InOrder"}},
            {REPLICA_BY: "job-index"},
            "root 1 (replica*1 1 (a 2, b 2))",
        ),
        (
            {"replicatedJobs": [replicated("a"), replicated("b", template=THEIRS)]},
            {},
            "root 1 (a-jobs 1 (a*1 2))",
        ),
    ],
)
def test_jobsets(spec: Plain, annotations: Mapping[str, str], expected: str) -> None:
    """A gang of replicated jobs, or of replicas; those that start later, or never, are not counted."""
    assert tree(shape_of(jobset.KIND, spec, annotations)) == expected


def test_a_jobset_of_many_replicated_jobs_has_a_level_more() -> None:
    """A list of templates has eight entries."""
    found = tree(shape_of(jobset.KIND, jobs(**{f"j{number}": 1 for number in range(10)})))
    assert found.startswith("root 2 (part 8 (j0-jobs 1 (j0*1 2), ")
    assert "part-2 2 (j8-jobs 1 (j8*1 2), j9-jobs 1 (j9*1 2))" in found
    too_many = shape_of(jobset.KIND, jobs(**{f"j{number}": 1 for number in range(65)}))
    assert too_many == Shape(problems=("it has 65 replicated jobs, and a tree may have 64",))


def test_priority_classes_have_to_agree() -> None:
    """All groups and pods of a tree have one priority."""
    high = {"spec": {"schedulerName": SCHEDULER_NAME, "priorityClassName": "high"}}
    spec = {"replicatedJobs": [replicated("a", template=high)]}
    assert tree(shape_of(jobset.KIND, spec)) == "root 1 ^high (a-jobs 1 ^high (a*1 2 ^high))"
    spec["replicatedJobs"].append(replicated("b"))
    assert shape_of(jobset.KIND, spec).problems == ("its replicated jobs have different priority classes: , high",)
    cluster = {"headGroupSpec": {"template": high}, "workerGroupSpecs": [{"groupName": "a", "template": OURS}]}
    assert shape_of(ray.KIND, cluster).problems == ("its groups have different priority classes: , high",)
    serving = {"leaderWorkerTemplate": {"size": 2, "leaderTemplate": high, "workerTemplate": OURS}}
    assert shape_of(leaderworkerset.KIND, serving).problems == (
        "its leader and its workers have different priority classes",
    )


def test_replicas_are_paired_only_where_they_are_equally_many() -> None:
    """Otherwise the tree is that of the replicated jobs, and the owner is told."""
    found = shape_of(jobset.KIND, jobs(a=2, b=1), {REPLICA_BY: "job-index"})
    assert found.problems == (
        "scheduling.cpg.dev/replica-by: job-index needs the same number of replicas in all replicated jobs",
    )
    assert found.spec is not None


@pytest.mark.parametrize(
    ("kind", "spec", "status"),
    [
        (jobset.KIND, {"replicatedJobs": [replicated("a", template=THEIRS)]}, {}),
        (jobset.KIND, {**jobs(a=1), "suspend": True}, {}),
        (jobset.KIND, jobs(a=1), {"conditions": [{"type": "Completed", "status": "True"}]}),
        (jobset.KIND, {}, {}),
        (job.KIND, {"template": OURS}, {}),
        (job.KIND, {"template": THEIRS, "completionMode": "Indexed"}, {}),
        (job.KIND, {"template": OURS, "completionMode": "Indexed", "scheduling": {}}, {}),
        (
            job.KIND,
            {"template": {**OURS, "metadata": {"labels": {jobset.NAME: "j"}}}, "completionMode": "Indexed"},
            {},
        ),
        (leaderworkerset.KIND, {"leaderWorkerTemplate": {"workerTemplate": THEIRS}}, {}),
        (ray.KIND, {"headGroupSpec": {"template": THEIRS}}, {}),
        (ray.KIND, {"headGroupSpec": {"template": OURS}, "suspend": True}, {}),
    ],
)
def test_owners_without_a_tree(kind: OwnerKind, spec: Plain, status: Plain) -> None:
    """Their pods are not ours, do not exist, or need no gang. One that rests keeps a tree that it has."""
    rests = bool(spec.get("suspend") or status)
    assert shape_of(kind, spec, status=status) == Shape(rests=rests)


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        ({"parallelism": 4, "completions": 3, "completionMode": "Indexed"}, {}, "pods 3"),
        ({"parallelism": 4}, {REQUIRED: "rack", DISRUPTION_MODE: "single"}, "pods 4 @rack !single"),
        ({"parallelism": 4}, {MIN_COUNT: "2", REPLICA_REQUIRED: "rack"}, "pods 2 @rack"),
        ({"parallelism": 0}, {}, "pods 1"),
    ],
)
def test_jobs(spec: Plain, annotations: Mapping[str, str], expected: str) -> None:
    """One gang of the pods that run at once; a Job that is not Indexed asks for it."""
    template = {**OURS, "metadata": {"annotations": {GANG: "true"}}}
    assert tree(shape_of(job.KIND, {"template": template, **spec}, annotations)) == expected


def serving(size: int = 3, *, replicas: int = 2, surge: object = None, **fields: Any) -> Plain:
    """Return the spec of a LeaderWorkerSet; other fields are those of its template."""
    rollout = {"rolloutStrategy": {"rollingUpdateConfiguration": {"maxSurge": surge}}} if surge is not None else {}
    template = {"size": size, "workerTemplate": OURS, "restartPolicy": "None", **fields}
    return {"replicas": replicas, "leaderWorkerTemplate": template, **rollout}


EXCLUSIVE = {leaderworkerset.EXCLUSIVE_TOPOLOGY: "block"}
SUBGROUPS = {leaderworkerset.SUBGROUP_TOPOLOGY: "rack"}


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        (serving(), {}, "root (replica*2 3)"),
        (serving(surge=1), {REPLICA_REQUIRED: "rack"}, "root (replica*3 3 @rack)"),
        (serving(replicas=3, surge="50%"), {}, "root (replica*5 3)"),
        (serving(surge="some"), {}, "root (replica*2 3)"),
        (serving(surge=3), {}, "root (replica*4 3)"),
        (serving(restartPolicy="RecreateGroupOnPodRestart"), {}, "root (replica*2 3 !all)"),
        ({**serving(), "startupPolicy": "LeaderReady"}, {}, "root (replica*2 1)"),
        (serving(leaderTemplate=OURS), {MIN_GROUPS: "2"}, "root 2 (replica*2 3)"),
        (serving(1, leaderTemplate=OURS, workerTemplate=THEIRS), {}, "root (replica*2 1)"),
        (serving(), EXCLUSIVE, "root (replica*2 1 @block)"),
        (
            serving(5, subGroupPolicy={"subGroupSize": 2}),
            EXCLUSIVE | SUBGROUPS,
            "root (replica*2 1 @block (subgroup*2 1 @rack))",
        ),
        (
            serving(5, subGroupPolicy={"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"}),
            SUBGROUPS,
            "root (replica*2 1 (leader 1, subgroup*2 1 @rack))",
        ),
        (serving(4, subGroupPolicy={"subGroupSize": 2}), {}, "root (replica*2 4)"),
    ],
)
def test_leader_worker_sets(spec: Plain, annotations: Mapping[str, str], expected: str) -> None:
    """A gang for each replica, those of an update included; workers that come later are not counted."""
    assert tree(shape_of(leaderworkerset.KIND, spec, annotations)) == expected


@pytest.mark.parametrize("template", [{"leaderTemplate": OURS, "workerTemplate": THEIRS}, {"leaderTemplate": THEIRS}])
def test_a_leader_and_workers_of_different_schedulers(template: Plain) -> None:
    """Their gang would wait for pods that are not ours."""
    found = shape_of(leaderworkerset.KIND, serving(**template))
    assert found == Shape(problems=("its leader and its workers have different schedulers",))


def test_a_leader_worker_set_with_too_many_replicas() -> None:
    """A template makes 1,000 groups at most."""
    found = shape_of(leaderworkerset.KIND, serving(replicas=1000, surge=1))
    assert found.problems == ("it may have 1001 replicas, and a tree 1000",)


def workers(name: str, replicas: int | None, **fields: Any) -> Plain:
    """Return a worker group."""
    return {"groupName": name, "replicas": replicas, "template": OURS, **fields}


@pytest.mark.parametrize(
    ("groups", "fields", "annotations", "expected"),
    [
        ([workers("a", 3)], {}, {}, "root 2 (headgroup 1, a 3)"),
        ([workers("a", None, minReplicas=2)], {}, {}, "root 2 (headgroup 1, a 2)"),
        ([workers("a", 5, maxReplicas=3)], {}, {}, "root 2 (headgroup 1, a 3)"),
        ([workers("GPU-Group", 1)], {}, {}, "root 2 (headgroup 1, gpu-group 1)"),
        ([workers("a", 3, numOfHosts=4)], {}, {REPLICA_REQUIRED: "rack"}, "root 2 (headgroup 1 @rack, a 12 @rack)"),
        (
            [workers("a", 3, minReplicas=1), workers("b", 5)],
            {"enableInTreeAutoscaling": True},
            {},
            "root 2 (headgroup 1, a 1, b 1)",
        ),
        ([workers("a", 3, suspend=True)], {}, {MIN_COUNT: "2"}, "root 1 (headgroup 1, a 2)"),
    ],
)
def test_ray_clusters(groups: list[Plain], fields: Plain, annotations: Mapping[str, str], expected: str) -> None:
    """A gang of the head and the groups that start with workers."""
    spec = {"headGroupSpec": {"template": OURS}, "workerGroupSpecs": groups, **fields}
    assert tree(shape_of(ray.KIND, spec, annotations)) == expected


def test_a_ray_cluster_of_too_many_groups() -> None:
    """Two levels of eight."""
    groups = [workers(f"g{number}", 1) for number in range(64)]
    found = shape_of(ray.KIND, {"headGroupSpec": {"template": OURS}, "workerGroupSpecs": groups})
    assert found.problems == ("it has 65 groups of pods, and a tree may have 64",)


@pytest.mark.parametrize("names", [["a", "A"], ["a.b"], ["headgroup"]])
def test_a_ray_cluster_whose_groups_cannot_be_named(names: list[str]) -> None:
    """The names of groups have no upper-case letters, and dots only between their parts."""
    groups = [workers(name, 1) for name in names]
    found = shape_of(ray.KIND, {"headGroupSpec": {"template": OURS}, "workerGroupSpecs": groups})
    assert found.spec is None
    assert found.problems[0].startswith("worker groups need names of their own, of letters, digits and '-': ")


def test_pods_that_are_to_be_left_out() -> None:
    """By a mark in their template."""
    out = {**OURS, "metadata": {"labels": {ADOPT: "false"}}}
    assert shape_of(jobset.KIND, {"replicatedJobs": [replicated("a", template=out)]}) == Shape()


def test_bad_annotations_are_reported_and_count_as_not_given() -> None:
    """Each with what would be right."""
    given = {REQUIRED: "a b", MIN_GROUPS: "0", MIN_COUNT: "x", DISRUPTION_MODE: "some", REPLICA_BY: "name"}
    found = read_policy(given)
    assert found._replace(problems=()) == read_policy({})
    assert found.problems == (
        "scheduling.cpg.dev/disruption-mode: must be all or single, not 'some'",
        "scheduling.cpg.dev/required-topology: 'a b' is no key of a node label",
        "scheduling.cpg.dev/min-groups: '0' is no number from 1",
        "scheduling.cpg.dev/min-count: 'x' is no number from 1",
        "scheduling.cpg.dev/replica-by: must be job-index, not 'name'",
    )


def test_the_annotations_of_the_first_owner_win() -> None:
    """A TrainJob and its JobSet may both have some."""
    assert read_policy({MIN_COUNT: "1"}, {MIN_COUNT: "2", MIN_GROUPS: "3"})[2:4] == (3, 1)


def expected_of(found: Shape) -> dict[str, list[tuple[int, Any]]]:
    """Return the expected pods by template: counts, each with the node selector of the spec, or None without a spec."""
    return {
        name: [(entry.count, entry.spec and entry.spec.node_selector) for entry in entries]
        for name, entries in found.expected.items()
    }


EXCLUSIVE = {jobset.EXCLUSIVE_TOPOLOGY: "rack"}


def test_a_jobset_with_exclusive_topology_begins_with_leaders() -> None:
    """Each Job has a domain for itself; its first pod waits for no other, and the others are expected."""
    spec = {
        "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": OURS}}}]
    }
    found = shape_of(jobset.KIND, spec, EXCLUSIVE | {MIN_COUNT: "2", REPLICA_REQUIRED: "block"})
    assert tree(found) == "root 1 (w-jobs 2 (w*2 1 @rack))"
    assert expected_of(found) == {"w": [(3, None)]}


def test_the_template_of_a_replicated_job_can_have_the_annotation() -> None:
    """The Jobs of others have all of their pods from the beginning."""
    both = [
        {
            "name": "a",
            "template": {"metadata": {"annotations": EXCLUSIVE}, "spec": {"parallelism": 2, "template": OURS}},
        },
        {"name": "b", "template": {"spec": {"parallelism": 2, "template": OURS}}},
    ]
    found = shape_of(jobset.KIND, {"replicatedJobs": both}, {"scheduling.cpg.dev/replica-preferred-topology": "switch"})
    assert tree(found) == "root 2 (a-jobs 1 (a*1 1 @rack ~switch), b-jobs 1 (b*1 2 ~switch))"
    assert expected_of(found) == {"a": [(2, None)]}
    paired = shape_of(jobset.KIND, {"replicatedJobs": both}, {REPLICA_BY: "job-index", REPLICA_REQUIRED: "block"})
    assert tree(paired) == "root 1 (replica*1 2 @block (a 1 @rack, b 2))"


def test_with_node_selectors_all_pods_come_at_once() -> None:
    """The nodes of each Job are labelled in advance, so the first pod is no leader."""
    spec = {"replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": 3, "template": OURS}}}]}
    found = shape_of(jobset.KIND, spec, EXCLUSIVE | {jobset.NODE_SELECTOR: "true"})
    assert tree(found) == "root 1 (w-jobs 1 (w*1 3))"
    assert expected_of(found) == {}


WORKER = {"spec": {**OURS["spec"], "nodeSelector": {"disk": "ssd"}}}


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        ({"size": 3, "workerTemplate": WORKER}, {}, {}),
        ({"size": 3, "workerTemplate": WORKER}, {leaderworkerset.EXCLUSIVE_TOPOLOGY: "rack"}, {"replica": [(3, None)]}),
        (
            {"size": 3, "workerTemplate": WORKER, "leaderTemplate": OURS},
            {leaderworkerset.EXCLUSIVE_TOPOLOGY: "rack"},
            {"replica": [(1, None), (2, {"disk": "ssd"})]},
        ),
        (
            {"size": 5, "workerTemplate": WORKER, "leaderTemplate": OURS, "subGroupPolicy": {"subGroupSize": 2}},
            {leaderworkerset.SUBGROUP_TOPOLOGY: "rack"},
            {"subgroup": [(2, {"disk": "ssd"})], "subgroup.0": [(1, None), (2, {"disk": "ssd"})]},
        ),
        (
            {"size": 4, "workerTemplate": WORKER, "subGroupPolicy": {"subGroupSize": 2}},
            {leaderworkerset.SUBGROUP_TOPOLOGY: "rack"},
            {"subgroup": [(2, {"disk": "ssd"})], "subgroup.0": [(1, {"disk": "ssd"}), (1, {"disk": "ssd"})]},
        ),
        (
            {
                "size": 5,
                "workerTemplate": WORKER,
                "subGroupPolicy": {"subGroupSize": 2, "subGroupPolicyType": "LeaderExcluded"},
            },
            {leaderworkerset.SUBGROUP_TOPOLOGY: "rack"},
            {"subgroup": [(2, {"disk": "ssd"})]},
        ),
    ],
)
def test_workers_that_follow_their_leader_are_expected(
    spec: Plain, annotations: Mapping[str, str], expected: dict[str, Any]
) -> None:
    """The first subgroup may have the leader beside as many workers as the others."""
    found = shape_of(leaderworkerset.KIND, {"leaderWorkerTemplate": spec}, annotations)
    assert expected_of(found) == expected


def test_workers_that_wait_for_a_ready_leader_are_expected() -> None:
    """They come later still, and the leader cannot run without them either."""
    spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3, "workerTemplate": WORKER}}
    assert expected_of(shape_of(leaderworkerset.KIND, spec)) == {"replica": [(3, None)]}


def test_what_a_template_needs_is_what_nodes_give() -> None:
    """Affinity to other pods is left out: the stand-ins have none of their labels."""
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    plain = {
        "schedulerName": SCHEDULER_NAME,
        "nodeSelector": {"disk": "ssd"},
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}]},
        },
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "a", "image": "busybox", "resources": resources}],
        "initContainers": [{"name": "b", "restartPolicy": "Always", "resources": resources}],
        "overhead": {"cpu": "1m"},
        "resources": {"requests": {"cpu": "3"}},
    }
    needs = msgspec.convert(plain, MemberTemplateSpec).needs
    assert msgspec.json.decode(msgspec.json.encode(needs)) == {
        "nodeSelector": {"disk": "ssd"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"name": "b", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
        "overhead": {"cpu": "1m"},
        "resources": {"requests": {"cpu": "3"}},
    }
