"""Pods on the wire, and their properties."""

import re

import msgspec
import pytest
from msgspec.inspect import Field, Metadata, StructType, Type, UnionType, VarTupleType, type_info

from cpg_api.core.affinity import Affinity, NodeAffinity, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import MIRROR, ContainerPort, Pod, PodSpec, PodStatus, SchedulingGroup, Toleration
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.meta import ObjectMeta
from cpg_api.parsing import Rejected, parse_object
from cpg_engine.testing.builders import metadata, pod

KINDS = (
    Pod,
    Node,
    Namespace,
    PriorityClass,
    PodDisruptionBudget,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CSINode,
)


@pytest.mark.parametrize(
    ("phase", "terminal"),
    [("", False), ("Pending", False), ("Running", False), ("Unknown", False), ("Succeeded", True), ("Failed", True)],
)
def test_only_succeeded_and_failed_pods_are_terminal(phase: str, terminal: bool) -> None:  # noqa: FBT001 - a table
    """A pod of unknown phase is not terminal."""
    assert Pod(status=PodStatus(phase=phase)).is_terminal is terminal


def test_a_pod_with_a_deletion_timestamp_is_terminating() -> None:
    """Whatever the time in it."""
    assert not pod("p").is_terminating
    assert Pod(metadata=ObjectMeta(deletion_timestamp="2026-01-01T00:00:00Z")).is_terminating


def test_the_key_of_a_pod_is_namespace_and_name() -> None:
    """It is that of its metadata."""
    assert pod("p", meta=metadata("p", namespace="ns")).metadata.key == "ns/p"


def test_a_pod_is_decoded_from_the_wire() -> None:
    """Including names that plain camelCase does not give, and the fields of gangs."""
    data = b"""{"spec":{"nodeName":"n","schedulerName":"s","schedulingGroup":{"podGroupName":"g"},"priority":-1,
        "tolerations":[{"operator":"Exists"}],"containers":[{"ports":[{"hostPort":1,"hostIP":"::1"}]}],
        "affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[
        {"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}]}}}},
        "status":{"phase":"Running","nominatedNodeName":"m"}}"""
    found = parse_object(data, Pod)
    assert not isinstance(found, Rejected)
    assert (found.spec.node_name, found.spec.scheduler_name, found.spec.priority) == ("n", "s", -1)
    assert found.spec.scheduling_group == SchedulingGroup(pod_group_name="g")
    assert found.spec.tolerations == (Toleration(operator="Exists"),)
    assert [container.ports for container in found.spec.containers or ()] == [
        (ContainerPort(host_port=1, host_ip="::1"),)
    ]
    term = NodeSelectorTerm(match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("n",)),))
    selector = NodeSelector(node_selector_terms=(term,))
    assert found.spec.affinity == Affinity(
        node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector)
    )
    assert (found.status.phase, found.status.nominated_node_name) == ("Running", "m")


def test_absent_fields_have_the_default_of_the_api_server() -> None:
    """A toleration is Equal, a port is TCP, a storage class binds immediately."""
    assert (Toleration().operator, ContainerPort().protocol) == ("Equal", "TCP")
    assert StorageClass().volume_binding_mode == "Immediate"
    assert parse_object(b"{}", Pod) == Pod(metadata=ObjectMeta(), spec=PodSpec(), status=PodStatus())


def test_host_ip_keeps_its_capitals() -> None:
    """The field is hostIP on the wire."""
    assert msgspec.json.encode(ContainerPort(host_ip="::1")) == b'{"hostIP":"::1"}'


@pytest.mark.parametrize("kind", KINDS)
def test_no_field_of_a_built_in_kind_is_required(kind: type[msgspec.Struct]) -> None:
    """An odd object is decoded as far as possible: the API server has accepted it."""
    assert parse_object(b"{}", kind) == kind()
    assert not [field.name for field in fields_of(type_info(kind)) if field.required]


@pytest.mark.parametrize("kind", KINDS)
def test_wire_names_are_camel_case(kind: type[msgspec.Struct]) -> None:
    """No Python name reaches the wire."""
    names = [field.encode_name for field in fields_of(type_info(kind))]
    assert [name for name in names if not re.fullmatch(r"[a-z]+([A-Z][a-z]*)*", name)] == []


def fields_of(shape: Type) -> list[Field]:
    """Return all fields of a type and of the types below it."""
    match shape:
        case StructType(fields=fields):
            return [*fields, *(inner for field in fields for inner in fields_of(field.type))]
        case UnionType(types=types):
            return [inner for one in types for inner in fields_of(one)]
        case VarTupleType(item_type=below) | Metadata(type=below):
            return fields_of(below)
    return []


def test_a_mirror_pod_is_recognised_by_its_annotation() -> None:
    """The kubelet sets it."""
    assert not pod("p").is_mirror
    assert Pod(metadata=ObjectMeta(annotations={MIRROR: "hash"})).is_mirror
