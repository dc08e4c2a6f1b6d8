"""Job: one gang of as many pods as run at once.

A gang counts finished pods as placed. Pods that have finished and were deleted are not made again, nor are those of an
index that has failed for good. So ``without_lost`` leaves them out of the completions.
"""

from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.integrations import jobset
from cpg_api.integrations.naming import PODS, Parts, read_mark, whole_name
from cpg_api.integrations.owners import JobSpec, OwnerStatus
from cpg_api.integrations.policy import OwnerPolicy
from cpg_api.integrations.trees import OwnerKind, Shape, flat
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.names import GANG
from cpg_api.structs import ApiStruct

PREFIX = "job"
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEXED = "Indexed"


class JobStatus(OwnerStatus, frozen=True):
    """The conditions of a Job, and what has become of its pods: with each change of it, its gang is reconciled."""

    active: int = 0
    failed: int = 0
    succeeded: int = 0
    failed_indexes: str = ""

    @property
    def failed_for_good(self) -> int:
        """Return how many indexes have failed for good; they are written as ``1,3-5``."""
        ranges = (one.partition("-") for one in self.failed_indexes.split(",") if one)
        return sum(int(last or first) - int(first) + 1 for first, _, last in ranges)


class Job(ApiStruct, frozen=True):
    """The fields of a Job that decide about its group."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


def derive(pod: Pod, controller: OwnerReference) -> Parts | None:
    """Return the parts for a pod of an Indexed Job, or of another one that asks for a gang; JobSets have their own."""
    if jobset.NAME in pod.metadata.labels:
        return None
    is_indexed = COMPLETION_INDEX in pod.metadata.labels or COMPLETION_INDEX in pod.metadata.annotations
    is_gang = is_indexed or read_mark(pod, GANG) == "true"
    return whole_name(PREFIX, controller.name, PODS) if is_gang else None


def without_lost(owner: Job, succeeded: int) -> Job:
    """Return a Job without the completions that no pod will stand for; of those that have succeeded so many exist."""
    status, spec = owner.status, owner.spec
    lost = max(status.succeeded - succeeded, 0) + status.failed_for_good
    if not lost:
        return owner
    completions = spec.parallelism if spec.completions is None else spec.completions
    return replace(owner, spec=replace(spec, completions=max(completions - lost, 0)))


def shape(owner: Job, policy: OwnerPolicy, schedulers: frozenset[str]) -> Shape:
    """Return the template of the gang of a Job; one that is suspended keeps its tree up to date.

    Kubernetes makes the groups of a Job with a ``scheduling`` of its own.
    """
    spec, template = owner.spec, owner.spec.template
    is_gang = spec.completion_mode == INDEXED or template.mark(GANG) == "true"
    if not template.is_ours(schedulers) or not is_gang or jobset.NAME in template.metadata.labels:
        return Shape()
    if spec.scheduling is not None or whole_name(PREFIX, owner.metadata.name, PODS) is None:
        return Shape()
    if owner.status.is_finished:
        return Shape(rests=True)
    minimum = max(min(policy.min_count or spec.size, spec.size), 1)
    found = flat(PODS, minimum, policy, template.spec.priority_class_name)
    return Shape(found.spec, rests=spec.suspend)


KIND = OwnerKind(PREFIX, "batch", ("v1",), "jobs", "Job", Job, shape)
