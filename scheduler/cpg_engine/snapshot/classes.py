"""Pod classes: pods that scheduling cannot tell apart share one, and all that is computed for it.

A gang of a thousand workers is one class, so its feasibility over all nodes is computed once. Labels belong to the
class only as far as some selector in the cluster asks for them: otherwise the completion index that a Job writes
into each pod's labels would make a class of every pod.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from cpg_api.core.affinity import PreferredSchedulingTerm
from cpg_api.core.pod import Container, Pod, PodSpec, Toleration
from cpg_api.problems import Problem
from cpg_api.selectors import LabelMatcher, NodeMatcher, NodeTermMatcher
from cpg_engine.snapshot.requests import pod_requests


class PodClass(Struct, frozen=True, eq=False):
    """What there is to know of pods that are all alike; two classes are the same only if they are one object."""

    index: int
    requests: dict[str, int]
    scored_cpu: int
    scored_memory: int
    node_name: str
    node_selector: LabelMatcher
    node_affinity: NodeMatcher | None
    preferences: tuple[tuple[int, NodeTermMatcher], ...]
    tolerations: tuple[Toleration, ...]
    images: tuple[str, ...]
    pod: Pod
    problems: tuple[Problem, ...]


def signature(pod: Pod, asked_labels: Iterable[str] = ()) -> bytes:
    """Return what pods of one class have in common and no other pod has."""
    spec = pod.spec
    return msgspec.msgpack.encode(
        (
            pod.metadata.namespace,
            [(key, pod.metadata.labels[key]) for key in sorted(asked_labels) if key in pod.metadata.labels],
            spec.node_name if not pod.status.phase else "",
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            [_relevant(container) for container in spec.containers or ()],
            [_relevant(container) for container in spec.init_containers or ()],
            spec.overhead,
            spec.resources,
            spec.volumes
            and [(volume.persistent_volume_claim, volume.ephemeral, volume.csi) for volume in spec.volumes],
            _volume_owner(pod),
            spec.resource_claims,
            [(status.name, status.allocated_resources) for status in pod.status.container_statuses or ()],
        )
    )


def _relevant(container: Container) -> tuple[object, ...]:
    return (
        container.name,
        container.image,
        container.resources.requests,
        [port for port in container.ports or () if port.host_port],
        container.restart_policy,
    )


def _volume_owner(pod: Pod) -> str:
    """Return the pod's name where an ephemeral volume makes a claim that bears it."""
    return pod.metadata.name if any(volume.ephemeral for volume in pod.spec.volumes or ()) else ""


def make_class(index: int, pod: Pod) -> PodClass:
    """Compile a class from one of its pods; raise ``RequestError`` where its requests are no amounts."""
    spec = pod.spec
    scored = pod_requests(pod, scored=True)
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    matcher = NodeMatcher.compile(required, "spec.affinity.nodeAffinity.required") if required else None
    preferences = tuple(_preferences(spec))
    return PodClass(
        index=index,
        requests={name: number for name, number in pod_requests(pod).items() if number},
        scored_cpu=scored["cpu"],
        scored_memory=scored["memory"],
        node_name=spec.node_name if not pod.status.phase else "",
        node_selector=LabelMatcher.exact(spec.node_selector),
        node_affinity=matcher,
        preferences=preferences,
        tolerations=spec.tolerations or (),
        images=tuple(container.image for container in spec.containers or ()),
        pod=pod,
        problems=(
            *(matcher.problems if matcher else ()),
            *(problem for _, term in preferences for problem in term.problems),
        ),
    )


def _preferences(spec: PodSpec) -> Iterable[tuple[int, NodeTermMatcher]]:
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    terms: tuple[PreferredSchedulingTerm, ...] = (
        (node_affinity.preferred_during_scheduling_ignored_during_execution or ()) if node_affinity else ()
    )
    for index, term in enumerate(terms):
        path = f"spec.affinity.nodeAffinity.preferred[{index}]"
        yield term.weight, NodeTermMatcher.compile(term.preference, path)
