"""DisaggregatedSet: a gang of its roles, and below each role the replicas of its LeaderWorkerSet.

A rollout makes LeaderWorkerSets of another revision beside the present ones, and scales both. So each revision has a
tree of its own: a pod counts for its own revision alone, and neither revision waits for the other.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.integrations import leaderworkerset
from cpg_api.integrations.leaderworkerset import LeaderWorkerSet
from cpg_api.integrations.naming import Parts, checked
from cpg_api.integrations.policy import (
    DISRUPTION_MODE,
    MIN_COUNT,
    REPLICA_PREFERRED,
    REPLICA_REQUIRED,
    OwnerPolicy,
    read_policy,
)
from cpg_api.integrations.trees import Child, Naming, OwnerKind, Shape, gang, no_tree
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.expected import ExpectedPods
from cpg_api.scheduling.names import MAX_TEMPLATES
from cpg_api.scheduling.policies import CompositeGangSchedulingPolicy, CompositePodGroupSchedulingPolicy
from cpg_api.scheduling.workload import CompositePodGroupTemplate, WorkloadSpec
from cpg_api.structs import ApiStruct

PREFIX = "disaggregatedset"
_GROUP = "disaggregatedset.x-k8s.io"
NAME, ROLE, REVISION = f"{_GROUP}/name", f"{_GROUP}/role", f"{_GROUP}/revision"
FOR_REPLICAS = frozenset({REPLICA_REQUIRED, REPLICA_PREFERRED, MIN_COUNT, DISRUPTION_MODE})
"""The annotations that roles take from the DisaggregatedSet where they have none."""


class Role(ApiStruct, frozen=True):
    """The name of a role: its LeaderWorkerSet says the rest."""

    name: str = ""


class DisaggregatedSetSpec(ApiStruct, frozen=True):
    """The roles of the newest revision."""

    roles: tuple[Role, ...] | None = None


class DisaggregatedSet(ApiStruct, frozen=True):
    """The fields of a DisaggregatedSet that decide about its trees."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DisaggregatedSetSpec = DisaggregatedSetSpec()


def derive(pod: Pod, controller: OwnerReference) -> Parts | None:
    """Return the parts for a pod of a role, if its LeaderWorkerSet has the name that the labels imply."""
    labels, inner = pod.metadata.labels, leaderworkerset.derive(pod, controller)
    parts = checked(PREFIX, labels.get(NAME), labels.get(REVISION), labels.get(ROLE))
    if inner is None or parts is None or inner[1] != "-".join(parts[1:]):
        return None
    _, _, template, *numbers = inner
    return checked(*parts[:-1], _template_name(parts[-1], template), *numbers)


def compose(
    owner: DisaggregatedSet, sets: Sequence[LeaderWorkerSet], policy: OwnerPolicy, schedulers: frozenset[str]
) -> Mapping[str, Shape]:
    """Return the templates of each revision; none for a revision of which some LeaderWorkerSets are missing."""
    expected = {role.name for role in owner.spec.roles or ()}
    revisions: dict[str, dict[str, LeaderWorkerSet]] = {}
    for one in sets:
        revision, _, role = one.metadata.name.removeprefix(f"{owner.metadata.name}-").partition("-")
        revisions.setdefault(revision, {})[role] = one
    found = {}
    for revision, roles in revisions.items():
        is_earlier = len(revisions) > 1 and any(one.spec.replicas for one in roles.values())
        is_whole = roles.keys() == expected or is_earlier
        found[revision] = _shape(owner, roles, policy, schedulers) if is_whole else Shape()
    return found


def _shape(
    owner: DisaggregatedSet, roles: Mapping[str, LeaderWorkerSet], policy: OwnerPolicy, schedulers: frozenset[str]
) -> Shape:
    """Return the templates of one revision. Each role needs one replica, and further replicas serve by themselves."""
    shared = {key: value for key, value in owner.metadata.annotations.items() if key in FOR_REPLICAS}
    problems: dict[str, None] = {}
    trees: dict[str, CompositePodGroupTemplate] = {}
    expected: dict[str, tuple[ExpectedPods, ...]] = {}
    for role in sorted(roles):
        wishes = read_policy(roles[role].metadata.annotations, shared)
        shape = leaderworkerset.shape(roles[role], wishes, schedulers)
        problems |= dict.fromkeys(one for one in (*wishes.problems, *shape.problems) if one not in policy.problems)
        if shape.spec is not None:
            (trees[role],) = shape.spec.composite_pod_group_templates or ()
        expected |= {_template_name(role, template): pods for template, pods in shape.expected.items()}
    problem = _problem(trees)
    if problem is not None:
        problems[problem] = None
    if problem is not None or not trees:
        return Shape(problems=tuple(problems))
    inner = {role: _as_role(role, tree) for role, tree in trees.items()}
    naming = Naming({name for one in inner.values() for name in _names(one)})
    root = naming.free("root")
    children = [Child(replace(one, name=naming.free(role)), 1) for role, one in inner.items()]
    top = gang(root, children, naming, minimum=policy.min_groups, constraints=policy.whole)
    return Shape(WorkloadSpec(composite_pod_group_templates=(top,)), tuple(problems), expected=expected)


def _problem(trees: Mapping[str, CompositePodGroupTemplate]) -> str | None:
    """Return why roles cannot be in one tree."""
    classes = {one.priority_class_name for one in trees.values()}
    if len(classes) > 1:
        return f"its roles have different priority classes: {', '.join(sorted(classes))}"
    if len(trees) > MAX_TEMPLATES and any(one.pod_group_templates is None for one in trees.values()):
        return f"it has {len(trees)} roles, some with subgroups, and a tree may then have {MAX_TEMPLATES}"
    return None


def _as_role(role: str, tree: CompositePodGroupTemplate) -> CompositePodGroupTemplate:
    """Return the tree of a LeaderWorkerSet as a gang that needs one replica, with names that no other role has."""
    needed = tree.scheduling_policy.gang or CompositeGangSchedulingPolicy(1)
    return replace(_renamed(role, tree), scheduling_policy=CompositePodGroupSchedulingPolicy(gang=needed))


def _renamed(role: str, tree: CompositePodGroupTemplate) -> CompositePodGroupTemplate:
    leaves, inner = tree.pod_group_templates, tree.composite_pod_group_templates
    return replace(
        tree,
        name=_template_name(role, tree.name),
        pod_group_templates=leaves and tuple(replace(one, name=_template_name(role, one.name)) for one in leaves),
        composite_pod_group_templates=inner and tuple(_renamed(role, one) for one in inner),
    )


def _template_name(role: str, template: str) -> str:
    """Return the name of a template of a role: the last part is one of a few, so roles never share a name."""
    return f"{role}-{template}"


def _names(tree: CompositePodGroupTemplate) -> Iterator[str]:
    yield tree.name
    yield from (one.name for one in tree.pod_group_templates or ())
    for inner in tree.composite_pod_group_templates or ():
        yield from _names(inner)


KIND = OwnerKind(
    PREFIX,
    _GROUP,
    ("v1",),
    "disaggregatedsets",
    "DisaggregatedSet",
    DisaggregatedSet,
    no_tree,
    leaderworkerset.KIND.kind,
    compose,
)
