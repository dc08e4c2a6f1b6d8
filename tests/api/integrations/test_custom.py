"""Kinds of owners that the settings describe: the groups of their pods, their trees, and mistakes in the settings."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodSpec
from cpg_api.integrations import job
from cpg_api.integrations.custom import CustomKind, CustomOwner, custom_problems
from cpg_api.integrations.policy import MIN_COUNT, MIN_GROUPS, REPLICA_BY, REPLICA_REQUIRED, REQUIRED, read_policy
from cpg_api.integrations.registry import Integrations, owner_kinds
from cpg_api.integrations.trees import Shape
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.names import ADOPT, SCHEDULER_NAME
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate

Plain = dict[str, Any]
OURS = {"spec": {"schedulerName": SCHEDULER_NAME}}
THEIRS = {"spec": {"schedulerName": "other"}}
ROLE, NUMBER = "example.com/role", "example.com/replica"
ALIKE = CustomKind("example.com", "v1", "Fleet", "fleets", template="pod", size="count")
ROLES = replace(ALIKE, roles="job.tasks", role_label=ROLE)
REPLICAS = replace(ALIKE, replicas="groups", replica_label=NUMBER)
BOTH = replace(ROLES, replicas="groups", replica_label=NUMBER)


def pod(labels: dict[str, str], *, kind: str = "Fleet", name: str = "train", group: str = "example.com") -> Pod:
    """Return a pod with this controller."""
    owner = OwnerReference(api_version=f"{group}/v7", kind=kind, name=name, controller=True)
    return Pod(ObjectMeta(labels=labels, owner_references=(owner,)), PodSpec(scheduler_name=SCHEDULER_NAME))


def group_of(kind: CustomKind, member: Pod) -> str | None:
    """Return the group that a pod derives."""
    return Integrations([SCHEDULER_NAME], [], [kind]).group_of(member)


@pytest.mark.parametrize(
    ("kind", "labels", "group"),
    [
        (ALIKE, {}, "fleet.train.pods"),
        (replace(ALIKE, prefix="ships"), {}, "ships.train.pods"),
        (ROLES, {ROLE: "Worker"}, "fleet.train.worker"),
        (REPLICAS, {NUMBER: "2"}, "fleet.train.replica.2"),
        (BOTH, {ROLE: "worker", NUMBER: "0"}, "fleet.train.worker.0"),
    ],
)
def test_the_group_of_a_pod(kind: CustomKind, labels: dict[str, str], group: str) -> None:
    """The owner is named by the controller reference alone; labels name role and replica."""
    assert group_of(kind, pod(labels)) == group


@pytest.mark.parametrize(
    ("kind", "member"),
    [
        (ALIKE, pod({}, group="example.org")),
        (ALIKE, pod({}, kind="Boat")),
        (ALIKE, pod({}, name="a.b")),
        (ALIKE, pod({ADOPT: "false"})),
        (ROLES, pod({})),
        (ROLES, pod({ROLE: "a.b"})),
        (REPLICAS, pod({})),
        (REPLICAS, pod({NUMBER: "x"})),
        (BOTH, pod({NUMBER: "1"})),
        (BOTH, pod({ROLE: "worker"})),
    ],
)
def test_pods_without_a_group(kind: CustomKind, member: Pod) -> None:
    """Another controller, or labels that do not fit."""
    assert group_of(kind, member) is None


def shape_of(
    kind: CustomKind,
    spec: Plain | None,
    name: str = "train",
    status: Plain | None = None,
    given: dict[str, str] | None = None,
) -> Shape:
    """Return the shape of an owner with some annotations."""
    plain = {"metadata": {"name": name}, "spec": spec, "status": status or {}}
    (read,) = owner_kinds([], [kind])
    return read.shape(msgspec.convert(plain, CustomOwner), read_policy(given or {}), frozenset({SCHEDULER_NAME}))


def text(template: PodGroupTemplate | CompositePodGroupTemplate) -> str:
    """Write a template as ``name*replicas minimum @topology (children)``."""
    gang, constraints = template.scheduling_policy.gang, template.scheduling_constraints
    found = template.name if template.replicas is None else f"{template.name}*{template.replicas}"
    if gang is not None:
        found += f" {getattr(gang, 'min_count', None) or getattr(gang, 'min_group_count', None)}"
    found += "".join(f" @{one.key}" for one in (constraints.topology or () if constraints else ()))
    if isinstance(template, CompositePodGroupTemplate):
        leaves, inner = template.pod_group_templates or (), template.composite_pod_group_templates or ()
        found += f" ({', '.join([*map(text, leaves), *map(text, inner)])})"
    return found


def tree(found: Shape) -> str:
    """Return the one tree of a shape."""
    assert found.spec is not None
    (top,) = found.spec.pod_group_templates or found.spec.composite_pod_group_templates or ()
    return text(top)


def tasks(**sizes: tuple[int, int]) -> Plain:
    """Return a spec with tasks of so many replicas and pods each."""
    found = [{"name": name, "groups": groups, "count": size, "pod": OURS} for name, (groups, size) in sizes.items()]
    return {"job": {"tasks": found}}


@pytest.mark.parametrize(
    ("kind", "spec", "annotations", "expected"),
    [
        (ALIKE, {"count": 3, "pod": OURS}, {REQUIRED: "rack"}, "pods 3 @rack"),
        (ALIKE, {"count": 3, "pod": OURS}, {MIN_COUNT: "2"}, "pods 2"),
        (ALIKE, {"pod": OURS}, {}, "pods 1"),
        (replace(ALIKE, size=""), {"count": 3, "pod": OURS}, {}, "pods 1"),
        (ROLES, tasks(a=(1, 2), b=(1, 3)), {REPLICA_REQUIRED: "rack"}, "root 2 (a 2 @rack, b 3 @rack)"),
        (ROLES, tasks(a=(1, 2), b=(1, 0)), {REQUIRED: "block"}, "root 1 @block (a 2, b 1)"),
        (ROLES, {"job": {"tasks": {"Worker": {"count": 2, "pod": OURS}}}}, {}, "root 1 (worker 2)"),
        (ROLES, {"job": {"tasks": [{"name": "a", "pod": OURS}, {"name": "b", "pod": THEIRS}]}}, {}, "root 1 (a 1)"),
        (REPLICAS, {"groups": 4, "count": 2, "pod": OURS}, {}, "root 4 (replica*4 2)"),
        (REPLICAS, {"groups": 4, "pod": OURS}, {MIN_GROUPS: "1"}, "root 1 (replica*4 1)"),
        (REPLICAS, {"groups": 0, "pod": OURS}, {}, "root (replica*0 1)"),
        (BOTH, tasks(a=(2, 3), b=(1, 1)), {}, "root 2 (a-replicas 2 (a*2 3), b-replicas 1 (b*1 1))"),
        (BOTH, tasks(root=(0, 3), b=(1, 1)), {}, "root-2 1 (root-replicas 1 (root*0 3), b-replicas 1 (b*1 1))"),
        (
            BOTH,
            tasks(a=(2, 3), b=(2, 1)),
            {REPLICA_BY: "job-index", REPLICA_REQUIRED: "rack"},
            "root 2 (replica*2 2 @rack (a 3, b 1))",
        ),
    ],
)
def test_trees(kind: CustomKind, spec: Plain, annotations: dict[str, str], expected: str) -> None:
    """One gang, a gang of roles, of replicas, or of both; as for JobSets."""
    found = shape_of(kind, spec, given=annotations)
    assert (tree(found), found.problems) == (expected, ())


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        (ALIKE, None),
        (ALIKE, {}),
        (ALIKE, {"pod": THEIRS}),
        (ROLES, {"pod": OURS}),
        (ROLES, {"job": {"tasks": 7}}),
        (ROLES, {"job": {"tasks": "abc"}}),
        (ROLES, {"job": {"tasks": [{"name": "a", "pod": THEIRS}]}}),
    ],
)
def test_owners_without_a_tree(kind: CustomKind, spec: Plain | None) -> None:
    """No pod template is ours."""
    assert shape_of(kind, spec) == Shape()


def test_a_finished_owner() -> None:
    """It keeps the tree that it has."""
    finished = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert shape_of(ALIKE, {"pod": OURS}, status=finished) == Shape(rests=True)


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        (ALIKE, {"pod": OURS, "count": "3"}, "spec.count: must be a number from 0, not '3'"),
        (ALIKE, {"pod": OURS, "count": True}, "spec.count: must be a number from 0, not 'True'"),
        (ALIKE, {"pod": {"spec": 7}}, "spec.pod: is no pod template: spec: Expected `object`, got `int`"),
        (
            ROLES,
            {"job": {"tasks": [{"name": "a", "pod": OURS, "count": -1}]}},
            "spec.job.tasks.a.count: must be a number",
        ),
        (ROLES, {"job": {"tasks": [{"pod": OURS}]}}, "spec.job.tasks: a role has no name, or is no object"),
        (ROLES, {"job": {"tasks": [7]}}, "spec.job.tasks: a role has no name, or is no object"),
        (ROLES, {"job": {"tasks": {"a": 7}}}, "spec.job.tasks: a role has no name, or is no object"),
        (ROLES, tasks(A=(1, 1), a=(1, 1)), "'train' and its role 'a' must be DNS labels, and different ones"),
        (ROLES, tasks(a_b=(1, 1)), "'train' and its role 'a_b' must be DNS labels, and different ones"),
        (ROLES, tasks(**{f"r{number}": (1, 1) for number in range(65)}), "it has 65 roles, and a tree may have 64"),
        (REPLICAS, {"groups": 1001, "pod": OURS}, "it has 1001 replicas, and a tree may have 1000"),
    ],
)
def test_specs_that_do_not_fit(kind: CustomKind, spec: Plain, problem: str) -> None:
    """Each with its path."""
    found = shape_of(kind, spec)
    assert found.spec is None
    assert found.problems[0].startswith(problem)


def test_more_that_does_not_fit() -> None:
    """Names with dots, different classes, and replicas that cannot be paired."""
    dotted = shape_of(ALIKE, {"pod": OURS}, name="a.b")
    assert dotted.problems == ("'a.b' and its role 'pods' must be DNS labels, and different ones",)
    high = {"spec": {**OURS["spec"], "priorityClassName": "high"}}
    classes = shape_of(ROLES, {"job": {"tasks": [{"name": "a", "pod": OURS}, {"name": "b", "pod": high}]}})
    assert classes.problems == ("its roles have different priority classes: , high",)
    unpaired = shape_of(BOTH, tasks(a=(2, 1), b=(1, 1)), given={REPLICA_BY: "job-index"})
    assert unpaired.problems == (f"{REPLICA_BY}: job-index needs the same number of replicas in all roles",)
    assert tree(unpaired) == "root 2 (a-replicas 2 (a*2 1), b-replicas 1 (b*1 1))"


def test_valid_settings_have_no_problem() -> None:
    """Beside other integrations."""
    kinds = [ALIKE, replace(BOTH, kind="Boat", prefix="boats")]
    assert list(custom_problems(kinds, [job.KIND])) == []


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (replace(ALIKE, group=""), "group: '' is not an API group"),
        (replace(ALIKE, version="1 2"), "version: '1 2' is not a version"),
        (replace(ALIKE, kind="fleet"), "kind: 'fleet' is not a kind"),
        (replace(ALIKE, plural="Fleets"), "plural: 'Fleets' is not the plural of a kind"),
        (replace(ALIKE, prefix="a.b"), "prefix: 'a.b' is not a DNS label"),
        (replace(ALIKE, template=".pod"), "template: '.pod' is not a path"),
        (replace(ALIKE, size="a..b"), "size: 'a..b' is not a path"),
        (replace(ROLES, role_label="a b"), "roleLabel: 'a b' is not the key of a label"),
        (replace(ROLES, role_label=""), "roles: takes roleLabel as well, and the other way round"),
        (replace(REPLICAS, replicas=""), "replicas: takes replicaLabel as well, and the other way round"),
    ],
)
def test_mistakes_in_the_settings(kind: CustomKind, problem: str) -> None:
    """Each with its place."""
    assert list(custom_problems([kind], [])) == [f"customIntegrations[0].{problem}"]


def test_kinds_and_prefixes_are_unique() -> None:
    """Of ours, of other integrations, and among themselves."""
    kinds = [replace(ALIKE, kind="Workload"), replace(ALIKE, prefix="job"), ALIKE]
    assert list(custom_problems(kinds, [job.KIND])) == [
        "customIntegrations[0]: 'Workload' is the kind or the prefix of another integration",
        "customIntegrations[1]: 'job' is the kind or the prefix of another integration",
        "customIntegrations[2]: 'Fleet' is the kind or the prefix of another integration",
    ]
