"""Pods' volumes, claims, volumes and storage classes, compiled to what scheduling needs of them.

Compiled forms are values: when only the status or the managed fields of a claim change, it compiles to an equal value,
and nothing that was derived from it is dropped. Malformed amounts never match: a volume without a readable capacity
holds nothing, and a claim without a readable size fits nowhere.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Self

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.core.volumes import ClaimSpec, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec, StorageClass
from cpg_api.meta import ObjectMeta
from cpg_api.quantity import INT64_MAX, Quantity, QuantityError, value
from cpg_api.selectors import Expression, LabelMatcher, NodeMatcher

BOUND_ANNOTATION = "pv.kubernetes.io/bind-completed"
CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
MULTI_NODE_MODES = frozenset({"ReadWriteMany", "ReadOnlyMany"})
FILESYSTEM = "Filesystem"
ZONE_KEYS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The labels that say where a volume is, each with its present name."""
_ZONE_DELIMITER = "__"


class ClaimUse(Struct, frozen=True):
    """A pod's use of a claim; the claim of an ephemeral volume has to be owned by the pod of that UID."""

    name: str
    owner: str | None = None


class PodVolumes(Struct, frozen=True):
    """What a pod needs of storage: claims of its namespace, and inline volumes, as drivers with numbers."""

    namespace: str
    claims: tuple[ClaimUse, ...] = ()
    inline: tuple[tuple[str, int], ...] = ()

    @property
    def keys(self) -> frozenset[str]:
        """Return the distinct claims."""
        return frozenset(claim_key(self.namespace, use.name) for use in self.claims)


def claim_key(namespace: str, name: str) -> str:
    """Return the key of a claim."""
    return f"{namespace}/{name}"


def pod_volumes(pod: Pod) -> PodVolumes | None:
    """Return what a pod needs of storage, or None where it needs nothing."""
    uses: list[ClaimUse] = []
    inline: Counter[str] = Counter()
    for volume in pod.spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            uses.append(ClaimUse(volume.persistent_volume_claim.claim_name))
        elif volume.ephemeral is not None:
            uses.append(ClaimUse(f"{pod.metadata.name}-{volume.name}", owner=pod.metadata.uid))
        elif volume.csi is not None and volume.csi.driver:
            inline[volume.csi.driver] += 1
    if not uses and not inline:
        return None
    return PodVolumes(pod.metadata.namespace, claims=tuple(uses), inline=tuple(sorted(inline.items())))


class VolumeRequirements(Struct, frozen=True):
    """What a claim requires of a volume, wherever the volume is."""

    storage_class: str
    size: int
    modes: frozenset[str]
    volume_mode: str
    selector: LabelMatcher | None = None
    attributes_class: str = ""


class ClaimInfo(Struct, frozen=True):
    """A claim; ``selected_node`` is the node for which its volume is already being provisioned."""

    key: str
    uid: str
    requirements: VolumeRequirements
    volume_name: str
    is_bound: bool
    is_lost: bool
    is_deleting: bool
    selected_node: str | None
    controllers: frozenset[str]

    @classmethod
    def compile(cls, claim: PersistentVolumeClaim) -> Self:
        """Compile a claim."""
        meta, spec = claim.metadata, claim.spec
        return cls(
            key=claim_key(meta.namespace, meta.name),
            uid=meta.uid,
            requirements=VolumeRequirements(
                storage_class=_class_name(meta, spec),
                size=_amount((spec.resources.requests or {}).get("storage", 0), INT64_MAX),
                modes=frozenset(spec.access_modes or ()),
                volume_mode=spec.volume_mode or FILESYSTEM,
                selector=LabelMatcher.compile(spec.selector) if spec.selector is not None else None,
                attributes_class=spec.volume_attributes_class_name or "",
            ),
            volume_name=spec.volume_name,
            is_bound=bool(spec.volume_name) and BOUND_ANNOTATION in meta.annotations,
            is_lost=claim.status.phase == "Lost",
            is_deleting=meta.deletion_timestamp is not None,
            selected_node=meta.annotations.get(NODE_ANNOTATION),
            controllers=frozenset(owner.uid for owner in meta.owner_references if owner.controller),
        )


class VolumeHandle(Struct, frozen=True):
    """The identity of a volume for its CSI driver; for a volume that does not exist yet, the key of its claim."""

    driver: str
    name: str
    made: bool = True


class VolumeInfo(Struct, frozen=True):
    """A volume; ``node_affinity`` selects the nodes that can reach it, None selects all."""

    name: str
    storage_class: str
    capacity: int
    modes: frozenset[str]
    volume_mode: str
    node_affinity: NodeMatcher | None
    zones: tuple[tuple[str, frozenset[str]], ...]
    handle: VolumeHandle | None
    claim: str | None
    claim_uid: str
    is_available: bool
    is_deleting: bool
    labels: Mapping[str, str]
    attributes_class: str

    @classmethod
    def compile(cls, volume: PersistentVolume) -> Self:
        """Compile a volume."""
        meta, spec = volume.metadata, volume.spec
        required = spec.node_affinity.required if spec.node_affinity else None
        csi = spec.csi
        return cls(
            name=meta.name,
            storage_class=_class_name(meta, spec),
            capacity=_amount((spec.capacity or {}).get("storage", 0), -1),
            modes=frozenset(spec.access_modes or ()),
            volume_mode=spec.volume_mode or FILESYSTEM,
            node_affinity=NodeMatcher.compile(required) if required else None,
            zones=tuple(_zones(meta.labels)),
            handle=VolumeHandle(csi.driver, csi.volume_handle) if csi and csi.driver and csi.volume_handle else None,
            claim=claim_key(spec.claim_ref.namespace, spec.claim_ref.name) if spec.claim_ref else None,
            claim_uid=spec.claim_ref.uid if spec.claim_ref else "",
            is_available=volume.status.phase == "Available",
            is_deleting=meta.deletion_timestamp is not None,
            labels=meta.labels,
            attributes_class=spec.volume_attributes_class_name or "",
        )

    def is_for(self, claim: ClaimInfo) -> bool:
        """Return whether the volume is reserved for the claim."""
        return self.claim == claim.key and self.claim_uid in {"", claim.uid}

    def holds(self, requirements: VolumeRequirements) -> bool:
        """Return whether it is large enough and of the right volume mode, which even a reserved volume must be."""
        return (
            not self.is_deleting and self.capacity >= requirements.size and self.volume_mode == requirements.volume_mode
        )

    def fits(self, requirements: VolumeRequirements) -> bool:
        """Return whether any claim with these requirements may have it."""
        return (
            self.claim is None
            and self.is_available
            and self.holds(requirements)
            and requirements.modes <= self.modes
            and requirements.attributes_class == self.attributes_class
            and (requirements.selector is None or requirements.selector.matches(self.labels))
        )


class StorageClassInfo(Struct, frozen=True):
    """A storage class: when its claims are bound, and on which nodes it can provision volumes, if at all."""

    is_delayed: bool
    provisioner: str
    allowed_topologies: tuple[tuple[Expression, ...], ...] | None

    @classmethod
    def compile(cls, found: StorageClass) -> Self:
        """Compile a storage class."""
        terms = tuple(
            tuple(
                Expression(each.key, "In", frozenset(each.values or ())) for each in term.match_label_expressions or ()
            )
            for term in found.allowed_topologies or ()
        )
        return cls(
            is_delayed=found.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER,
            provisioner=found.provisioner,
            allowed_topologies=tuple(term for term in terms if term) if terms else None,
        )

    @property
    def can_provision(self) -> bool:
        """Return whether it can provision volumes at all."""
        return self.provisioner not in {"", NO_PROVISIONER}


def _class_name(meta: ObjectMeta, spec: ClaimSpec | PersistentVolumeSpec) -> str:
    return meta.annotations.get(CLASS_ANNOTATION, spec.storage_class_name or "")


def _amount(quantity: Quantity, otherwise: int) -> int:
    try:
        return value(quantity)
    except QuantityError:
        return otherwise


def _zones(labels: dict[str, str]) -> list[tuple[str, frozenset[str]]]:
    """Return where a volume is by its labels; a label with an empty part is ignored."""
    found = []
    for key in ZONE_KEYS:
        parts = [part.strip() for part in labels.get(key, "").split(_ZONE_DELIMITER)]
        if all(parts):
            found.append((key, frozenset(parts)))
    return found
