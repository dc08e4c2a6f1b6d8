"""Job: one gang of as many pods as run at once."""

from cpg_api.core.pod import Pod
from cpg_api.integrations import jobset
from cpg_api.integrations.naming import Parts, read_mark
from cpg_api.integrations.owners import JobSpec, OwnerStatus
from cpg_api.integrations.policy import OwnerPolicy
from cpg_api.integrations.trees import OwnerKind, Shape, flat
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.names import GANG
from cpg_api.structs import ApiStruct

PREFIX = "job"
PODS = "pods"
"""The template of the one group."""

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEXED = "Indexed"


class Job(ApiStruct, frozen=True):
    """The fields of a Job that decide about its group."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: OwnerStatus = OwnerStatus()


def derive(pod: Pod, controller: OwnerReference) -> Parts | None:
    """Return the parts for a pod of an Indexed Job, or of another one that asks for a gang; JobSets have their own."""
    if jobset.NAME in pod.metadata.labels:
        return None
    is_indexed = COMPLETION_INDEX in pod.metadata.labels or COMPLETION_INDEX in pod.metadata.annotations
    return (PREFIX, controller.name, PODS) if is_indexed or read_mark(pod, GANG) == "true" else None


def shape(owner: Job, policy: OwnerPolicy, schedulers: frozenset[str]) -> Shape:
    """Return the template of the gang of a Job."""
    spec, template = owner.spec, owner.spec.template
    is_gang = spec.completion_mode == INDEXED or template.mark(GANG) == "true"
    if spec.suspend or owner.status.is_finished:
        return Shape()
    if not template.is_ours(schedulers) or not is_gang or jobset.NAME in template.metadata.labels:
        return Shape()
    return flat(PODS, policy.min_count or max(spec.size, 1), policy, template.spec.priority_class_name)


KIND = OwnerKind(PREFIX, "batch", ("v1",), "jobs", "Job", Job, shape)
