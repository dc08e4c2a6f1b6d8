"""The parts of objects that the operator reads. Changes of all other parts cause no event."""

from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod, PodSpec, PodStatus
from cpg_api.integrations import jobset, leaderworkerset
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.membership import membership_entries
from cpg_api.scheduling.names import (
    DERIVED_FROM,
    EXPECTED_PODS,
    GROUP,
    INSTANTIATE,
    INSTANTIATED,
    REPLICAS,
    TEMPLATE_HASH,
)
from cpg_api.scheduling.partial_release import RELEASE_ANNOTATION
from cpg_api.scheduling.workload import Workload
from cpg_operator.view.tree_index import ManagedObject

M = TypeVar("M", bound=ManagedObject)
S = TypeVar("S", bound=Struct)


def slim_pod(pod: Pod) -> Pod:
    """Return a pod with nothing but the fields that the operator reads."""
    meta, spec = pod.metadata, pod.spec
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            deletion_timestamp=meta.deletion_timestamp,
            labels=membership_entries(meta.labels),
            annotations=membership_entries(meta.annotations),
        ),
        spec=PodSpec(
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            scheduling_group=spec.scheduling_group,
            priority=spec.priority,
            preemption_policy=spec.preemption_policy,
        ),
        status=PodStatus(phase=pod.status.phase),
        derived_group=pod.derived_group,
    )


def slim_node(node: Node) -> Node:
    """Return a node with nothing but its labels."""
    return Node(metadata=ObjectMeta(name=node.metadata.name, uid=node.metadata.uid, labels=node.metadata.labels))


READ_ANNOTATIONS = frozenset(
    {DERIVED_FROM, EXPECTED_PODS, INSTANTIATE, INSTANTIATED, RELEASE_ANNOTATION, REPLICAS, TEMPLATE_HASH}
)


def slim_managed(found: M) -> M:
    """Return a group or Workload without labels, other annotations, owners that do not control it, and attempts."""
    meta = found.metadata
    kept = replace(
        meta,
        labels={},
        annotations={name: value for name, value in meta.annotations.items() if name in READ_ANNOTATIONS},
        owner_references=tuple(owner for owner in meta.owner_references if owner.controller),
    )
    if isinstance(found, Workload) or found.status.attempt is None:
        return replace(found, metadata=kept)
    return replace(found, metadata=kept, status=replace(found.status, attempt=None))


OWNER_ANNOTATIONS = (f"{GROUP}/", jobset.EXCLUSIVE_TOPOLOGY, jobset.NODE_SELECTOR, *leaderworkerset.TOPOLOGIES)
"""What the names of the annotations begin with that shape the tree of an owner."""


def slim_owner(found: S) -> S:
    """Return an owner with the metadata that its tree depends on: another version of the same is no change."""
    meta: ObjectMeta = found.metadata  # type: ignore[attr-defined] # every kind has it
    annotations = {name: value for name, value in meta.annotations.items() if name.startswith(OWNER_ANNOTATIONS)}
    owners = tuple(owner for owner in meta.owner_references if owner.controller)
    kept = ObjectMeta(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        deletion_timestamp=meta.deletion_timestamp,
        annotations=annotations,
        owner_references=owners,
    )
    return replace(found, metadata=kept)
