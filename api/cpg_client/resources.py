"""The resources that kube-cpg reads and writes, and their paths.

A ``Resource`` is one plural in one group-version. The built-in scheduling API and ours have the same kinds, so the two
flavours differ in these constants alone.
"""

from dataclasses import dataclass
from urllib.parse import quote

STATUS = "status"
BINDING = "binding"


@dataclass(frozen=True)
class Resource:
    """One resource of the API server; ``group`` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The group-version as objects spell it in ``apiVersion``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of an object, of a collection, or of a collection across all namespaces.

        An invalid combination is a bug, hence ``ValueError``. So is a name that is no single path segment, which is
        also the API server's rule for names.
        """
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, got {namespace!r}")
        if name is not None and namespace is None and self.namespaced:
            raise ValueError(f"{self.plural} {name!r} needs a namespace")
        if subresource is not None and name is None:
            raise ValueError(f"subresource {subresource!r} of {self.plural} needs a name")
        inside = "" if namespace is None else f"/namespaces/{_segment(namespace)}"
        which = "" if name is None else f"/{_segment(name)}"
        part = "" if subresource is None else f"/{subresource}"
        return f"{group_path(self.group, self.version)}{inside}/{self.plural}{which}{part}"


def group_path(group: str, version: str) -> str:
    """Return the root path of a group-version. The core group has its own root."""
    return f"/apis/{group}/{version}" if group else f"/api/{version}"


def _segment(name: str) -> str:
    if name in {"", ".", ".."} or "/" in name or "%" in name:
        raise ValueError(f"{name!r} cannot stand in a path")
    return quote(name, safe=":@")


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
PERSISTENT_VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
POD_DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
RESOURCE_CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
RESOURCE_SLICES = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False)
DEVICE_CLASSES = Resource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", namespaced=False)
DEVICE_TAINT_RULES = Resource("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", namespaced=False)
DEVICE_TAINT_RULES_BETA = Resource(
    "resource.k8s.io", "v1beta2", "devicetaintrules", "DeviceTaintRule", namespaced=False
)

CPG_GROUP = "scheduling.cpg.dev"
CPG_WORKLOADS = Resource(CPG_GROUP, "v1alpha3", "workloads", "Workload")
CPG_POD_GROUPS = Resource(CPG_GROUP, "v1alpha3", "podgroups", "PodGroup")
CPG_COMPOSITE_POD_GROUPS = Resource(CPG_GROUP, "v1alpha3", "compositepodgroups", "CompositePodGroup")

NATIVE_GROUP = "scheduling.k8s.io"
NATIVE_WORKLOADS = Resource(NATIVE_GROUP, "v1beta1", "workloads", "Workload")
NATIVE_POD_GROUPS = Resource(NATIVE_GROUP, "v1beta1", "podgroups", "PodGroup")
NATIVE_POD_GROUPS_ALPHA = Resource(NATIVE_GROUP, "v1alpha3", "podgroups", "PodGroup")
NATIVE_COMPOSITE_POD_GROUPS = Resource(NATIVE_GROUP, "v1alpha3", "compositepodgroups", "CompositePodGroup")
