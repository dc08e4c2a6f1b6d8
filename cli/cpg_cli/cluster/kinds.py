"""The kinds of objects that decisions depend on, and where each stands in a dump."""

from cpg_api.core.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_client import resources
from cpg_client.resources import Resource

FIELDS: dict[type, str] = {
    Node: "nodes",
    Namespace: "namespaces",
    PriorityClass: "priority_classes",
    PodDisruptionBudget: "budgets",
    StorageClass: "storage_classes",
    CSINode: "csi_nodes",
    PersistentVolume: "volumes",
    PersistentVolumeClaim: "claims",
    DeviceClass: "device_classes",
    ResourceSlice: "slices",
    DeviceTaintRule: "taint_rules",
    ResourceClaim: "device_claims",
    Pod: "pods",
}
"""The field of a dump that has the objects of a kind."""

RESOURCES: dict[type, Resource] = {
    Node: resources.NODES,
    Namespace: resources.NAMESPACES,
    PriorityClass: resources.PRIORITY_CLASSES,
    PodDisruptionBudget: resources.POD_DISRUPTION_BUDGETS,
    StorageClass: resources.STORAGE_CLASSES,
    CSINode: resources.CSI_NODES,
    PersistentVolume: resources.PERSISTENT_VOLUMES,
    PersistentVolumeClaim: resources.PERSISTENT_VOLUME_CLAIMS,
    DeviceClass: resources.DEVICE_CLASSES,
    ResourceSlice: resources.RESOURCE_SLICES,
    DeviceTaintRule: resources.DEVICE_TAINT_RULES,
    ResourceClaim: resources.RESOURCE_CLAIMS,
    Pod: resources.PODS,
}

OLDER: dict[type, tuple[Resource, ...]] = {
    DeviceClass: (),
    ResourceSlice: (),
    DeviceTaintRule: (resources.DEVICE_TAINT_RULES_BETA,),
    ResourceClaim: (),
}
"""The kinds that not every API server has, with their older versions."""
