"""RayCluster: a gang of its head and its worker groups.

A group that is autoscaled has the least number of its workers as its minimum, and others join it. So does a group of
hosts that form one replica, whose workers come and go together.

Worker groups may have upper-case letters in their names; those of our groups have none.
"""

from collections.abc import Collection, Sequence

from cpg_api.core.pod import Pod
from cpg_api.integrations.naming import Parts, checked
from cpg_api.integrations.owners import MemberTemplate
from cpg_api.integrations.policy import OwnerPolicy
from cpg_api.integrations.trees import MAX_PARTS, Child, Naming, OwnerKind, Shape, gang, leaf
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.workload import WorkloadSpec
from cpg_api.structs import ApiStruct

PREFIX = "raycluster"
CLUSTER, GROUP = "ray.io/cluster", "ray.io/group"
HEAD = "headgroup"
"""The group label of the head."""


class HeadGroup(ApiStruct, frozen=True):
    """The head."""

    template: MemberTemplate = MemberTemplate()


class WorkerGroup(ApiStruct, frozen=True):
    """Equal workers; several hosts can form one replica."""

    group_name: str = ""
    replicas: int | None = None
    min_replicas: int = 0
    max_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool = False
    template: MemberTemplate = MemberTemplate()

    def minimum(self, *, autoscales: bool) -> int:
        """Return how many pods the cluster starts with."""
        least = 0 if self.suspend else self.min_replicas
        replicas = least if autoscales or self.suspend or self.replicas is None else max(self.replicas, least)
        if self.max_replicas is not None:
            replicas = min(replicas, self.max_replicas)
        return replicas * max(self.num_of_hosts, 1)


class RayClusterSpec(ApiStruct, frozen=True):
    """The head and the worker groups."""

    head_group_spec: HeadGroup = HeadGroup()
    worker_group_specs: tuple[WorkerGroup, ...] | None = None
    enable_in_tree_autoscaling: bool = False
    suspend: bool = False


class RayCluster(ApiStruct, frozen=True):
    """The fields of a RayCluster that decide about its tree."""

    metadata: ObjectMeta = ObjectMeta()
    spec: RayClusterSpec = RayClusterSpec()


def derive(pod: Pod, controller: OwnerReference) -> Parts | None:
    """Return the parts for the head or a worker; the submitter of a RayJob carries no label of Ray."""
    labels = pod.metadata.labels
    parts = checked(PREFIX, labels.get(CLUSTER), labels.get(GROUP, "").lower())
    return parts if parts is not None and controller.name == parts[1] else None


def shape(owner: RayCluster, policy: OwnerPolicy, schedulers: frozenset[str]) -> Shape:
    """Return the templates of a RayCluster's tree; groups whose pods are not ours are left out."""
    spec = owner.spec
    if spec.suspend:
        return Shape(rests=True)
    autoscales, workers = spec.enable_in_tree_autoscaling, spec.worker_group_specs or ()
    sizes = [(one.group_name.lower(), one.minimum(autoscales=autoscales), one.template) for one in workers]
    sizes.insert(0, (HEAD, 1, spec.head_group_spec.template))
    ours = [(name, size, template) for name, size, template in sizes if template.is_ours(schedulers)]
    if not ours:
        return Shape()
    names, classes = [name for name, _, _ in ours], {template.spec.priority_class_name for _, _, template in ours}
    if problem := _problem(names, classes):
        return Shape(problems=(problem,))
    (priority_class,) = classes
    children = []
    for name, size, _ in ours:
        minimum = (policy.min_count or size) if name != HEAD else size
        template = leaf(
            name, max(minimum, 1), constraints=policy.replica, mode=policy.mode, priority_class=priority_class
        )
        children.append(Child(template, int(size > 0)))
    naming = Naming(names)
    root = naming.free("root")
    top = gang(root, children, naming, minimum=policy.min_groups, constraints=policy.whole, mode=policy.mode)
    return Shape(WorkloadSpec(composite_pod_group_templates=(top,)))


def _problem(names: Sequence[str], classes: Collection[str]) -> str | None:
    """Return why no tree can have these groups of pods with these priority classes, or None."""
    if len(classes) > 1:
        return f"its groups have different priority classes: {', '.join(sorted(classes))}"
    if bad := [name for name in names if checked(name) is None or names.count(name) > 1]:
        return f"worker groups need names of their own, of letters, digits and '-': {', '.join(bad)}"
    return f"it has {len(names)} groups of pods, and a tree may have {MAX_PARTS}" if len(names) > MAX_PARTS else None


KIND = OwnerKind(PREFIX, "ray.io", ("v1",), "rayclusters", "RayCluster", RayCluster, shape)
