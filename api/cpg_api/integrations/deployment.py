"""Deployment: a basic group for each of its ReplicaSets, so a rollout has the groups of two templates side by side.

The label that opts in stands in the pod template. Deployments give their ReplicaSets the labels of the pod template and
their own annotations, so a watch with a selector finds the ReplicaSets, and all others cost nothing.
"""

from cpg_api.core.pod import Pod
from cpg_api.integrations.naming import PODS, Parts, whole_name
from cpg_api.integrations.owners import MemberTemplate
from cpg_api.integrations.policy import MIN_COUNT, OwnerPolicy
from cpg_api.integrations.trees import OwnerKind, Shape, flat
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.names import GANG
from cpg_api.structs import ApiStruct

PREFIX = "replicaset"
HASH = "pod-template-hash"
NO_GANG = f"{MIN_COUNT}: a rollout creates the pods of a Deployment few at a time, so they cannot be a gang"


class ReplicaSetSpec(ApiStruct, frozen=True):
    """The pods of a ReplicaSet."""

    replicas: int = 1
    template: MemberTemplate = MemberTemplate()


class ReplicaSet(ApiStruct, frozen=True):
    """The fields of a ReplicaSet that decide about its group."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReplicaSetSpec = ReplicaSetSpec()


def derive(pod: Pod, controller: OwnerReference) -> Parts | None:
    """Return the parts for a pod that opts in, if its ReplicaSet is one of a Deployment."""
    labels = pod.metadata.labels
    is_ours = labels.get(GANG) == "true" and _is_of_deployment(controller.name, labels)
    return whole_name(PREFIX, controller.name, PODS) if is_ours else None


def shape(owner: ReplicaSet, policy: OwnerPolicy, schedulers: frozenset[str]) -> Shape:
    """Return the template of the group of a ReplicaSet; one without pods keeps what it has."""
    template, name = owner.spec.template, owner.metadata.name
    labels = template.metadata.labels
    is_ours = template.is_ours(schedulers) and labels.get(GANG) == "true" and _is_of_deployment(name, labels)
    if not is_ours or whole_name(PREFIX, name, PODS) is None:
        return Shape()
    if not owner.spec.replicas:
        return Shape(rests=True)
    found = flat(PODS, None, policy, template.spec.priority_class_name)
    return Shape(found.spec, (NO_GANG,)) if policy.min_count is not None else found


def _is_of_deployment(name: str, labels: dict[str, str]) -> bool:
    """Return whether the name of a ReplicaSet ends with the hash that Deployments give it and its pods."""
    return bool(labels.get(HASH)) and name.endswith(f"-{labels[HASH]}")


KIND = OwnerKind(PREFIX, "apps", ("v1",), "replicasets", "ReplicaSet", ReplicaSet, shape, selector=f"{GANG}=true")
