"""Storage in a simulation: claims get their class, and volumes as soon as these would be provisioned."""

from collections.abc import Collection, Iterator

from msgspec.structs import replace

from cpg_api.core.volumes import (
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    StorageClass,
)
from cpg_api.meta import ObjectMeta
from cpg_cli.analysis.changes import ObjectChange
from cpg_engine.cluster.volumes import BOUND_ANNOTATION

DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
WAITS = "WaitForFirstConsumer"


def new_claim(claim: PersistentVolumeClaim, classes: Collection[StorageClass]) -> Iterator[ObjectChange]:
    """Yield the creation of a claim, and of its volume unless the scheduler chooses that.

    A claim of an unknown class gets a volume that every node has access to.
    """
    spec = claim.spec
    if spec.storage_class_name is None:
        spec = replace(spec, storage_class_name=_default_class(classes))
        claim = replace(claim, spec=spec)
    modes = {one.metadata.name: one.volume_binding_mode for one in classes}
    if spec.volume_name or modes.get(spec.storage_class_name or "") == WAITS:
        yield ObjectChange(None, claim)
    else:
        yield from bound_claim(None, claim)


def bound_claim(
    before: PersistentVolumeClaim | None, claim: PersistentVolumeClaim, volume: str | None = None
) -> Iterator[ObjectChange]:
    """Yield what binds a claim to a volume that exists, or else to one that is provisioned."""
    if volume is None:
        found = _provisioned(claim)
        volume = found.metadata.name
        yield ObjectChange(None, found)
    meta = replace(claim.metadata, annotations={**claim.metadata.annotations, BOUND_ANNOTATION: "yes"})
    yield ObjectChange(before, replace(claim, metadata=meta, spec=replace(claim.spec, volume_name=volume)))


def _default_class(classes: Collection[StorageClass]) -> str | None:
    """Return the default class; a dump does not say which that is, so there it is the only one."""
    marked = [one.metadata.name for one in classes if one.metadata.annotations.get(DEFAULT_CLASS) == "true"]
    names = marked or [one.metadata.name for one in classes]
    return names[0] if len(names) == 1 else None


def _provisioned(claim: PersistentVolumeClaim) -> PersistentVolume:
    meta, spec = claim.metadata, claim.spec
    name = f"pvc-{meta.uid}"
    reference = ObjectReference(kind="PersistentVolumeClaim", namespace=meta.namespace, name=meta.name, uid=meta.uid)
    requests = spec.resources.requests
    provisioned = PersistentVolumeSpec(
        capacity=requests,
        access_modes=spec.access_modes,
        storage_class_name=spec.storage_class_name or "",
        volume_mode=spec.volume_mode,
        claim_ref=reference,
    )
    return PersistentVolume(
        metadata=ObjectMeta(name=name, uid=name), spec=provisioned, status=PersistentVolumeStatus(phase="Bound")
    )
