"""What the tree of a Job depends on beside the Job: its finished pods, and the Workload that Kubernetes makes of it."""

from typing import Any

from cpg_api.integrations import job
from cpg_api.integrations.naming import PODS
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.writes import TreeKey


def observe_owner(view: ClusterView, key: TreeKey, owner: Any) -> Any:  # noqa: ANN401  # each kind has a type of its own
    """Return an owner as its tree sees it: a Job without lost completions, or None where Kubernetes groups its pods.

    Kubernetes 1.37 makes a Workload of a Job before its pods, if the gate WorkloadWithJob is on.
    """
    if not isinstance(owner, job.Job):
        return owner
    if view.owners.has_other_workload(owner.metadata.uid):
        return None
    group = GroupKey(PodGroup.kind, key.anchor.namespace, f"{job.PREFIX}.{key.anchor.name}.{PODS}")
    succeeded = sum(pod.status.phase == "Succeeded" for pod in view.members(key.flavour, group))
    return job.without_lost(owner, succeeded)
