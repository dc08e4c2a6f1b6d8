"""JobSet: a gang of its replicated jobs, and below each a gang of its replicas, one PodGroup for each Job.

A Job with a domain of its own (exclusive topology) begins with one pod; the others are expected and have room reserved.
With ``replica-by: job-index`` the Jobs of the same index in all replicated jobs form a group instead. Replicated jobs
whose Jobs are created later, after others, are not part of the minimum.
"""

from collections.abc import Sequence

from cpg_api.core.pod import Pod
from cpg_api.integrations.naming import Parts, checked
from cpg_api.integrations.owners import JobSpec, OwnerStatus
from cpg_api.integrations.policy import JOB_INDEX, REPLICA_BY, OwnerPolicy
from cpg_api.integrations.trees import MAX_PARTS, Child, Naming, OwnerKind, Shape, Template, composite, gang, leaf
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.expected import ExpectedPods
from cpg_api.scheduling.policies import SchedulingConstraints, TopologyConstraint
from cpg_api.scheduling.workload import WorkloadSpec
from cpg_api.structs import ApiStruct

PREFIX = "jobset"
NAME = "jobset.sigs.k8s.io/jobset-name"
ROLE = "jobset.sigs.k8s.io/replicatedjob-name"
UID = "jobset.sigs.k8s.io/jobset-uid"
INDEX = "jobset.sigs.k8s.io/job-index"
EXCLUSIVE_TOPOLOGY = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
IN_ORDER = "InOrder"


class JobTemplate(ApiStruct, frozen=True):
    """The template of the Jobs of a replicated job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()


class Dependency(ApiStruct, frozen=True):
    """A replicated job that comes before another one."""

    name: str = ""


class ReplicatedJob(ApiStruct, frozen=True):
    """Several equal Jobs."""

    name: str = ""
    replicas: int = 1
    template: JobTemplate = JobTemplate()
    depends_on: tuple[Dependency, ...] | None = None


class StartupPolicy(ApiStruct, frozen=True):
    """Whether replicated jobs start in order."""

    startup_policy_order: str = ""


class JobSetSpec(ApiStruct, frozen=True):
    """The replicated jobs, and in which order they start."""

    suspend: bool = False
    replicated_jobs: tuple[ReplicatedJob, ...] | None = None
    startup_policy: StartupPolicy | None = None


class JobSet(ApiStruct, frozen=True):
    """The fields of a JobSet that decide about its tree."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSetSpec = JobSetSpec()
    status: OwnerStatus = OwnerStatus()


def derive(pod: Pod, controller: OwnerReference) -> Parts | None:
    """Return the parts of the name of a pod's group, if the pod's Job is one of a JobSet."""
    labels = pod.metadata.labels
    parts = checked(PREFIX, labels.get(NAME), labels.get(ROLE), labels.get(INDEX))
    return parts if parts is not None and controller.name == "-".join(parts[1:]) else None


def shape(owner: JobSet, policy: OwnerPolicy, schedulers: frozenset[str]) -> Shape:
    """Return the templates of a JobSet's tree; replicated jobs whose pods are not ours are left out.

    A suspended or finished JobSet has no tree yet, or needs none any more.
    """
    if owner.spec.suspend or owner.status.is_finished:
        return Shape(rests=True)
    jobs = [job for job in owner.spec.replicated_jobs or () if job.template.spec.template.is_ours(schedulers)]
    classes = {job.template.spec.template.spec.priority_class_name for job in jobs}
    problems = []
    if not jobs:
        return Shape()
    if len(classes) > 1:
        return Shape(problems=(f"its replicated jobs have different priority classes: {', '.join(sorted(classes))}",))
    if len(jobs) > MAX_PARTS:
        return Shape(problems=(f"it has {len(jobs)} replicated jobs, and a tree may have {MAX_PARTS}",))
    pairs = policy.pairs_replicas
    if pairs and len({job.replicas for job in jobs}) > 1:
        pairs = False
        problems.append(f"{REPLICA_BY}: {JOB_INDEX} needs the same number of replicas in all replicated jobs")
    naming = Naming([job.name for job in jobs])
    root = naming.free("root")
    children = _paired(owner, jobs, policy, naming) if pairs else _by_job(owner, jobs, policy, naming)
    top = gang(root, children, naming, minimum=policy.min_groups, constraints=policy.whole, mode=policy.mode)
    expected = {job.name: (ExpectedPods(job.template.spec.size),) for job in jobs if _exclusive(owner, job)}
    return Shape(WorkloadSpec(composite_pod_group_templates=(top,)), tuple(problems), expected=expected)


def _by_job(owner: JobSet, jobs: Sequence[ReplicatedJob], policy: OwnerPolicy, naming: Naming) -> list[Child]:
    """Return a gang of replicas for each replicated job; those whose Jobs come later do not count."""
    children = []
    for number, job in enumerate(jobs):
        below = _leaf(owner, job, policy, replicas=job.replicas, constraints=policy.replica)
        starts = job.replicas > 0 and job.template.spec.size > 0 and not _comes_later(owner, jobs, number)
        template = composite(naming.free(f"{job.name}-jobs"), max(job.replicas, 1), [below], mode=policy.mode)
        children.append(Child(template, int(starts)))
    return children


def _paired(owner: JobSet, jobs: Sequence[ReplicatedJob], policy: OwnerPolicy, naming: Naming) -> list[Child]:
    """Return one template of gangs, each with the Jobs of one index."""
    replicas = jobs[0].replicas
    leaves = []
    for number, job in enumerate(jobs):
        starts = job.template.spec.size > 0 and not _comes_later(owner, jobs, number)
        leaves.append(Child(_leaf(owner, job, policy), int(starts)))
    name = naming.free("replica")
    return [
        Child(gang(name, leaves, naming, replicas=replicas, constraints=policy.replica, mode=policy.mode), replicas)
    ]


def _leaf(
    owner: JobSet,
    job: ReplicatedJob,
    policy: OwnerPolicy,
    *,
    replicas: int | None = None,
    constraints: SchedulingConstraints | None = None,
) -> Template:
    """Return the template of the groups of a replicated job; a Job with a domain of its own begins with one pod."""
    minimum = policy.min_count or max(job.template.spec.size, 1)
    key = _exclusive(owner, job)
    if key:
        preferred = constraints.preferred_topology if constraints else None
        minimum, constraints = (
            1,
            SchedulingConstraints(topology=(TopologyConstraint(key),), preferred_topology=preferred),
        )
    return leaf(
        job.name,
        minimum,
        replicas=replicas,
        constraints=constraints,
        mode=policy.mode,
        priority_class=job.template.spec.template.spec.priority_class_name,
    )


def _exclusive(owner: JobSet, job: ReplicatedJob) -> str:
    """Return the node label of the domain that each Job has for itself, if its other pods follow the first one.

    With node selectors, the nodes are labelled in advance, and all pods are created at once.
    """
    annotations = {**owner.metadata.annotations, **job.template.metadata.annotations}
    return "" if NODE_SELECTOR in annotations else annotations.get(EXCLUSIVE_TOPOLOGY, "")


def _comes_later(owner: JobSet, jobs: Sequence[ReplicatedJob], number: int) -> bool:
    """Return whether the Jobs of a replicated job are created after those of others have started or completed."""
    policy = owner.spec.startup_policy
    is_ordered = policy is not None and policy.startup_policy_order == IN_ORDER
    return bool(jobs[number].depends_on) or (is_ordered and jobs[number] is not (owner.spec.replicated_jobs or ())[0])


KIND = OwnerKind(PREFIX, "jobset.x-k8s.io", ("v1alpha2",), "jobsets", "JobSet", JobSet, shape)
