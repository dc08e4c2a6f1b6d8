"""Storage objects with good defaults: claims, volumes, storage classes, and what CSI drivers say of nodes."""

from collections.abc import Mapping, Sequence

from cpg_api.core.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_api.core.pod import Pod
from cpg_api.core.resources import ResourceRequirements
from cpg_api.core.volumes import (
    ClaimSpec,
    ClaimStatus,
    ClaimVolumeSource,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIPersistentVolumeSource,
    CSIVolumeSource,
    EphemeralVolumeSource,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    PodVolume,
    StorageClass,
    TopologySelectorLabelRequirement,
    TopologySelectorTerm,
    VolumeNodeAffinity,
    VolumeNodeResources,
)
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_engine.cluster.storage import StorageCatalog
from cpg_engine.cluster.volumes import BOUND_ANNOTATION, NO_PROVISIONER, NODE_ANNOTATION, WAIT_FOR_FIRST_CONSUMER
from cpg_engine.testing.builders import NAMESPACE

LOCAL = "local"
"""The storage class of claims and volumes unless another is named."""
DRIVER = "csi.example.com"
ONCE = ("ReadWriteOnce",)

Stored = PersistentVolumeClaim | PersistentVolume | StorageClass | CSINode


def stock(storage: StorageCatalog, *objects: Stored) -> StorageCatalog:
    """Put objects of any kind into a catalog."""
    for found in objects:
        match found:
            case PersistentVolumeClaim():
                storage.put_claim(found)
            case PersistentVolume():
                storage.put_volume(found)
            case StorageClass():
                storage.put_class(found)
            case _:
                storage.put_csi_node(found)
    return storage


def claim(
    name: str,
    *,
    size: str | float | None = "1Gi",
    storage_class: str | None = LOCAL,
    modes: Sequence[str] = ONCE,
    bound_to: str = "",
    volume_mode: str | None = None,
    phase: str = "",
    node: str | None = None,
    owner: Pod | None = None,
    annotations: Mapping[str, str] | None = None,
    deleted: str | None = None,
) -> PersistentVolumeClaim:
    """Return a claim: bound where a volume is named, else unbound; with a node, its volume is being made there."""
    notes = {**(annotations or {})}
    if bound_to:
        notes[BOUND_ANNOTATION] = "yes"
    if node is not None:
        notes[NODE_ANNOTATION] = node
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            uid=f"uid-{name}",
            annotations=notes,
            deletion_timestamp=deleted,
            owner_references=(OwnerReference(uid=owner.metadata.uid, controller=True),) if owner else (),
        ),
        spec=ClaimSpec(
            access_modes=tuple(modes),
            resources=ResourceRequirements(requests={"storage": size} if size is not None else None),
            storage_class_name=storage_class,
            volume_name=bound_to,
            volume_mode=volume_mode,
        ),
        status=ClaimStatus(phase=phase),
    )


def volume(
    name: str,
    *,
    size: str | float | None = "1Gi",
    storage_class: str = LOCAL,
    modes: Sequence[str] = ONCE,
    at: Mapping[str, Sequence[str]] | None = None,
    labels: Mapping[str, str] | None = None,
    claimed_by: str | None = None,
    claim_uid: str = "",
    handle: str = "",
    volume_mode: str | None = None,
    phase: str = "Available",
    deleted: str | None = None,
) -> PersistentVolume:
    """Return a volume, reachable from nodes with all of the labels ``at``, from everywhere without any."""
    return PersistentVolume(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", labels=dict(labels or {}), deletion_timestamp=deleted),
        spec=PersistentVolumeSpec(
            capacity={"storage": size} if size is not None else None,
            access_modes=tuple(modes),
            storage_class_name=storage_class,
            volume_mode=volume_mode,
            claim_ref=ObjectReference(namespace=NAMESPACE, name=claimed_by, uid=claim_uid) if claimed_by else None,
            node_affinity=VolumeNodeAffinity(required=selecting(at)) if at is not None else None,
            csi=CSIPersistentVolumeSource(driver=DRIVER, volume_handle=handle) if handle else None,
        ),
        status=PersistentVolumeStatus(phase=phase),
    )


def selecting(labels: Mapping[str, Sequence[str]]) -> NodeSelector:
    """Return the selector of nodes that have one of the values for each label."""
    expressions = (NodeSelectorRequirement(key=key, operator="In", values=tuple(labels[key])) for key in labels)
    return NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=tuple(expressions)),))


def storage_class(
    name: str = LOCAL,
    *,
    provisioner: str = NO_PROVISIONER,
    mode: str = WAIT_FOR_FIRST_CONSUMER,
    at: Sequence[Mapping[str, Sequence[str]]] | None = None,
) -> StorageClass:
    """Return a storage class that waits for the first consumer; it provisions no volumes unless a driver is named."""
    terms = (
        TopologySelectorTerm(
            match_label_expressions=tuple(
                TopologySelectorLabelRequirement(key=key, values=tuple(values)) for key, values in term.items()
            )
        )
        for term in at or ()
    )
    return StorageClass(
        metadata=ObjectMeta(name=name),
        provisioner=provisioner,
        volume_binding_mode=mode,
        allowed_topologies=tuple(terms) if at is not None else None,
    )


def csi_node(name: str, *, limit: int | None = None, keys: Sequence[str] = (), driver: str = DRIVER) -> CSINode:
    """Return what one CSI driver says of a node."""
    allocatable = VolumeNodeResources(count=limit) if limit is not None else None
    drivers = (CSINodeDriver(name=driver, topology_keys=tuple(keys), allocatable=allocatable),)
    return CSINode(metadata=ObjectMeta(name=name), spec=CSINodeSpec(drivers=drivers))


def using(*claims: str) -> tuple[PodVolume, ...]:
    """Return the volumes of a pod that uses these claims."""
    return tuple(
        PodVolume(name=f"v{index}", persistent_volume_claim=ClaimVolumeSource(claim_name=name))
        for index, name in enumerate(claims)
    )


def ephemeral(*names: str) -> tuple[PodVolume, ...]:
    """Return generic ephemeral volumes."""
    return tuple(PodVolume(name=name, ephemeral=EphemeralVolumeSource()) for name in names)


def inline(*drivers: str) -> tuple[PodVolume, ...]:
    """Return volumes that CSI drivers make inline."""
    return tuple(PodVolume(name=f"i{index}", csi=CSIVolumeSource(driver=name)) for index, name in enumerate(drivers))
