"""Nodes."""

from cpg_api.core.resources import ResourceList
from cpg_api.meta import ObjectMeta
from cpg_api.structs import ApiStruct


class Taint(ApiStruct, frozen=True):
    """A taint: it excludes every pod that does not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class NodeSpec(ApiStruct, frozen=True):
    """The desired state of a node."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] | None = None


class NodeCondition(ApiStruct, frozen=True):
    """One observation about a node."""

    type: str = ""
    status: str = ""


class ContainerImage(ApiStruct, frozen=True):
    """An image that a node has already pulled."""

    names: tuple[str, ...] | None = None
    size_bytes: int = 0


class NodeStatus(ApiStruct, frozen=True):
    """The resources, conditions and images of a node."""

    allocatable: ResourceList | None = None
    capacity: ResourceList | None = None
    conditions: tuple[NodeCondition, ...] | None = None
    images: tuple[ContainerImage, ...] | None = None


class Node(ApiStruct, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
