"""The kinds that are served, and how they differ."""

from dataclasses import dataclass
from functools import cached_property

from cpg_client import resources
from cpg_client.resources import Resource
from cpg_lab import devices


@dataclass(frozen=True, kw_only=True, eq=False)
class Kind:
    """One kind: whether it is a custom resource, and which of the usual parts its objects have."""

    resource: Resource
    is_custom: bool = False
    has_status: bool = False
    """Whether the status is a subresource, which other writes do not change."""
    has_generation: bool = False
    takes_metadata_with_status: bool = False
    """Whether a write of the status may change labels, annotations and finalizers."""
    is_completed_later: bool = False
    """Whether a new object is stored without all defaults that readers see, so that the next write adds them."""
    is_created_by_put: bool = False
    needs_version: bool = False
    """Whether a PUT has to name the version that it replaces."""
    returns_deleted: bool = False
    """Whether the answer to the deletion is the object, and no ``Status``."""

    @cached_property
    def key(self) -> str:
        """The plural with its group, as in messages of the API server."""
        return f"{self.resource.plural}.{self.resource.group}" if self.resource.group else self.resource.plural


def _built_in(resource: Resource, **traits: bool) -> Kind:
    return Kind(resource=resource, **traits)


PODS = _built_in(
    resources.PODS, has_status=True, has_generation=True, takes_metadata_with_status=True, returns_deleted=True
)
NAMESPACES = _built_in(resources.NAMESPACES, has_status=True, takes_metadata_with_status=True)
PRIORITY_CLASSES = _built_in(resources.PRIORITY_CLASSES, has_generation=True)
BUILT_IN = (
    PODS,
    NAMESPACES,
    PRIORITY_CLASSES,
    _built_in(resources.NODES, has_status=True, takes_metadata_with_status=True),
    _built_in(resources.PERSISTENT_VOLUMES, has_status=True, takes_metadata_with_status=True, returns_deleted=True),
    _built_in(
        resources.PERSISTENT_VOLUME_CLAIMS,
        is_completed_later=True,
        has_status=True,
        takes_metadata_with_status=True,
        returns_deleted=True,
    ),
    _built_in(resources.EVENTS),
    _built_in(resources.LEASES, needs_version=True, is_created_by_put=True),
    _built_in(
        resources.POD_DISRUPTION_BUDGETS,
        has_status=True,
        has_generation=True,
        takes_metadata_with_status=True,
        needs_version=True,
    ),
    _built_in(resources.STORAGE_CLASSES, returns_deleted=True),
    _built_in(resources.CSI_NODES, returns_deleted=True),
)
RESOURCE_CLAIMS = _built_in(resources.RESOURCE_CLAIMS, has_status=True, returns_deleted=True)
CLAIM_TEMPLATES = _built_in(devices.CLAIM_TEMPLATES, returns_deleted=True)
DEVICES = (
    RESOURCE_CLAIMS,
    CLAIM_TEMPLATES,
    _built_in(resources.RESOURCE_SLICES, has_generation=True, returns_deleted=True),
    _built_in(resources.DEVICE_CLASSES, has_generation=True, returns_deleted=True),
    _built_in(resources.DEVICE_TAINT_RULES, has_status=True, has_generation=True, returns_deleted=True),
)
NATIVE_GROUPS = (
    _built_in(resources.NATIVE_POD_GROUPS, has_status=True, needs_version=True),
    _built_in(resources.NATIVE_COMPOSITE_POD_GROUPS, has_status=True, needs_version=True),
    _built_in(resources.NATIVE_WORKLOADS, needs_version=True),
)
CUSTOM_GROUPS = tuple(
    Kind(
        resource=resource,
        is_custom=True,
        is_completed_later=True,
        has_status=True,
        has_generation=True,
        needs_version=True,
    )
    for resource in (resources.CPG_POD_GROUPS, resources.CPG_COMPOSITE_POD_GROUPS, resources.CPG_WORKLOADS)
)
ALL = (*BUILT_IN, *DEVICES, *NATIVE_GROUPS, *CUSTOM_GROUPS)


def served_kinds(*, custom: bool, native: bool, devices: bool) -> tuple[Kind, ...]:
    """Return the kinds of a server with these APIs of groups, and with or without devices."""
    chosen = ((custom, CUSTOM_GROUPS), (native, NATIVE_GROUPS), (devices, DEVICES))
    return (*BUILT_IN, *(kind for is_served, kinds in chosen if is_served for kind in kinds))


def subresources_of(kind: Kind) -> tuple[str, ...]:
    """Return the subresources of a kind."""
    further = {PODS: ("binding",), NAMESPACES: ("finalize",)}.get(kind, ())
    return (*(("status",) if kind.has_status else ()), *further)
