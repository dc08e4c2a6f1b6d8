"""Classes of pods: pods that are identical for scheduling share a class, and everything that is computed for it.

A gang of a thousand workers is one class, so its feasibility over all nodes is computed once. Labels belong to the
class only if a selector in the cluster asks for them; otherwise the completion index that a Job writes into each pod's
labels would make a class of every pod.

Nominated pods are in classes of their own.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

import msgspec
from msgspec import Struct

from cpg_api.core.affinity import PreferredSchedulingTerm
from cpg_api.core.pod import Container, ContainerStatus, Pod, PodSpec, Toleration
from cpg_api.problems import Problem
from cpg_api.selectors import LabelMatcher, Labels, NodeMatcher, NodeTermMatcher
from cpg_engine.cluster.device_needs import PodDevices
from cpg_engine.cluster.pod_relations import Relations, relations_of
from cpg_engine.cluster.requests import is_resize_infeasible, pod_requests
from cpg_engine.cluster.volumes import PodVolumes, pod_volumes

TOO_LARGE = Problem("spec", "the pod is too large: it has too many labels, constraints, volumes or containers")
TOO_LARGE_NAME = "(too large)"
"""The name of the only container of a pod of which too much would have to be kept; it is no valid name."""

NOMINATED = "nominated/"
"""The prefix of the UID of a nominated pod, which reserves room but may never come; real UIDs have no slash."""


class PodClass(Struct, frozen=True, eq=False, weakref=True):
    """What identical pods have in common; two classes are equal only if they are the same object.

    ``index`` is never reused, so it may stand for the class. ``pod`` is one of the pods; its name, and labels other
    than ``labels``, are its own and not those of the class.
    """

    index: int
    namespace: str
    labels: Labels
    terminating: bool
    nominated: bool
    relations: Relations
    requests: dict[str, int]
    scored_cpu: int
    scored_memory: int
    node_name: str
    node_selector: LabelMatcher
    node_affinity: NodeMatcher | None
    preferences: tuple[tuple[int, NodeTermMatcher], ...]
    tolerations: tuple[Toleration, ...]
    images: tuple[str, ...]
    volumes: PodVolumes | None
    devices: PodDevices | None
    pod: Pod
    problems: tuple[Problem, ...]


class PlacedPod(Struct, frozen=True):
    """A pod that is placed at a row; ``claims`` are the keys of its device claims, in the order of its needs."""

    pod_class: PodClass
    row: int
    claims: tuple[str, ...] = ()
    uid: str = ""


def signature(pod: Pod, asked_labels: AbstractSet[str] = frozenset(), devices: PodDevices | None = None) -> bytes:
    """Return what the pods of one class have in common and no other pod has.

    ``devices`` are those that the pod still needs. It is JSON, because that encodes integers of any size, and pods may
    contain them.
    """
    spec = pod.spec
    return msgspec.json.encode(
        (
            pod.metadata.namespace,
            _asked(pod, asked_labels),
            pod.is_terminating,
            is_nominated(pod),
            spec.node_name if not pod.status.phase else "",
            spec.node_selector,
            spec.affinity,
            [(found.key, found.operator, found.value, found.effect) for found in spec.tolerations or ()],
            spec.topology_spread_constraints,
            [_relevant(container) for container in spec.containers or ()],
            [_relevant(container) for container in spec.init_containers or ()],
            spec.overhead,
            spec.resources,
            spec.volumes
            and [(volume.persistent_volume_claim, volume.ephemeral, volume.csi) for volume in spec.volumes],
            _volume_owner(pod),
            devices,
            [_granted(status) for status in pod.status.container_statuses or ()],
            [_granted(status) for status in pod.status.init_container_statuses or ()],
            is_resize_infeasible(pod),
        )
    )


def is_nominated(pod: Pod) -> bool:
    """Return whether the pod stands for one that was nominated."""
    return pod.metadata.uid.startswith(NOMINATED)


def _granted(status: ContainerStatus) -> tuple[object, ...]:
    return status.name, status.allocated_resources, status.resources and status.resources.requests


def _asked(pod: Pod, asked_labels: AbstractSet[str]) -> list[tuple[str, str]]:
    return sorted((key, value) for key, value in pod.metadata.labels.items() if key in asked_labels)


def _relevant(container: Container) -> tuple[object, ...]:
    return (
        container.name,
        container.image,
        container.resources.requests,
        [port for port in container.ports or () if port.host_port],
        container.restart_policy,
    )


def _volume_owner(pod: Pod) -> tuple[str, str] | None:
    """Return the pod itself if it has an ephemeral volume: the claim of such a volume belongs to that pod alone."""
    ephemeral = any(volume.ephemeral for volume in pod.spec.volumes or ())
    return (pod.metadata.name, pod.metadata.uid) if ephemeral else None


def make_class(
    index: int, pod: Pod, asked_labels: AbstractSet[str] = frozenset(), devices: PodDevices | None = None
) -> PodClass:
    """Compile a class from one of its pods; raise ``RequestError`` where its requests are no amounts."""
    spec = pod.spec
    scored = pod_requests(pod, scored=True)
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
    matcher = NodeMatcher.compile(required, "spec.affinity.nodeAffinity.required") if required else None
    preferences = tuple(_preferences(spec))
    labels = dict(_asked(pod, asked_labels))
    relations = relations_of(pod, labels)
    return PodClass(
        index=index,
        namespace=pod.metadata.namespace,
        labels=labels,
        terminating=pod.is_terminating,
        nominated=is_nominated(pod),
        relations=relations,
        requests={name: number for name, number in pod_requests(pod).items() if number},
        scored_cpu=scored.get("cpu", 0),
        scored_memory=scored.get("memory", 0),
        node_name=spec.node_name if not pod.status.phase else "",
        node_selector=LabelMatcher.exact(spec.node_selector),
        node_affinity=matcher,
        preferences=preferences,
        tolerations=spec.tolerations or (),
        images=tuple(container.image for container in (*(spec.init_containers or ()), *(spec.containers or ()))),
        volumes=pod_volumes(pod),
        devices=devices,
        pod=pod,
        problems=(
            *(matcher.problems if matcher else ()),
            *(problem for _, term in preferences for problem in term.problems),
            *relations.problems,
            *((TOO_LARGE,) if spec.containers and spec.containers[0].name == TOO_LARGE_NAME else ()),
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
