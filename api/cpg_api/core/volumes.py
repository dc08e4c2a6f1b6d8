"""Volumes of pods, their claims, and the storage limits of nodes."""

from cpg_api.core.affinity import NodeSelector
from cpg_api.core.resources import ResourceRequirements
from cpg_api.meta import LabelSelector, ObjectMeta
from cpg_api.structs import ApiStruct


class ClaimVolumeSource(ApiStruct, frozen=True):
    """A volume backed by a claim in the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class ClaimSpec(ApiStruct, frozen=True):
    """The request of a claim."""

    access_modes: tuple[str, ...] | None = None
    resources: ResourceRequirements = ResourceRequirements()
    storage_class_name: str | None = None
    volume_name: str = ""
    volume_mode: str | None = None
    selector: LabelSelector | None = None
    volume_attributes_class_name: str | None = None


class ClaimTemplate(ApiStruct, frozen=True):
    """The template of an ephemeral volume's claim."""

    spec: ClaimSpec = ClaimSpec()


class EphemeralVolumeSource(ApiStruct, frozen=True):
    """A volume with a claim of its own, named ``<pod>-<volume>``."""

    volume_claim_template: ClaimTemplate | None = None


class CSIVolumeSource(ApiStruct, frozen=True):
    """An inline volume that a CSI driver provides for one pod."""

    driver: str = ""


class PodVolume(ApiStruct, frozen=True):
    """A volume of a pod. Kinds of volumes that no filter reads are left out."""

    name: str = ""
    persistent_volume_claim: ClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: CSIVolumeSource | None = None


class ClaimStatus(ApiStruct, frozen=True):
    """The phase of a claim."""

    phase: str = ""


class PersistentVolumeClaim(ApiStruct, frozen=True):
    """A claim for storage."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(ApiStruct, frozen=True):
    """The nodes that have access to a volume."""

    required: NodeSelector | None = None


class CSIPersistentVolumeSource(ApiStruct, frozen=True):
    """The driver of a volume, and the driver's name for it."""

    driver: str = ""
    volume_handle: str = ""


class ObjectReference(ApiStruct, frozen=True):
    """A reference to another object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PersistentVolumeSpec(ApiStruct, frozen=True):
    """A piece of storage."""

    capacity: dict[str, str | int | float] | None = None
    access_modes: tuple[str, ...] | None = None
    storage_class_name: str = ""
    volume_mode: str | None = None
    volume_attributes_class_name: str | None = None
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIPersistentVolumeSource | None = None


class PersistentVolumeStatus(ApiStruct, frozen=True):
    """The phase of a volume."""

    phase: str = ""


class PersistentVolume(ApiStruct, frozen=True):
    """A volume of the cluster."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologySelectorLabelRequirement(ApiStruct, frozen=True):
    """The values of a node label for which the provisioner can create volumes."""

    key: str = ""
    values: tuple[str, ...] | None = None


class TopologySelectorTerm(ApiStruct, frozen=True):
    """All of its expressions must match."""

    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] | None = None


class StorageClass(ApiStruct, frozen=True):
    """A class of volumes, with its provisioner."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] | None = None


class VolumeNodeResources(ApiStruct, frozen=True):
    """How many volumes a node can attach."""

    count: int | None = None


class CSINodeDriver(ApiStruct, frozen=True):
    """A CSI driver on a node."""

    name: str = ""
    topology_keys: tuple[str, ...] | None = None
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(ApiStruct, frozen=True):
    """The CSI drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] | None = None


class CSINode(ApiStruct, frozen=True):
    """The CSI drivers of one node, and their limits."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()
