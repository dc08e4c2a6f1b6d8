"""Whose nomination a pod shows: ours, or that of another component.

An autoscaler may nominate our pending pods as well (KEP-5278), and is responsible for its nomination. Only the managed
fields of the object tell the two apart, also after a restart. They are half of a pod, so they are decoded for pods with
a nomination alone. A pod without managed fields shows a nomination of ours.
"""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.decoding import decode
from cpg_api.parsing import Rejected, parse_object
from cpg_client.connection import FIELD_MANAGER


class _StatusFields(Struct, frozen=True):
    nomination: Raw | UnsetType = field(name="f:nominatedNodeName", default=UNSET)


class _Fields(Struct, frozen=True):
    status: _StatusFields = field(name="f:status", default=_StatusFields())


class _ManagedFields(Struct, frozen=True):
    manager: str = ""
    fields: _Fields = field(name="fieldsV1", default=_Fields())


class _ManagedMeta(Struct, frozen=True):
    managed: tuple[_ManagedFields, ...] = field(name="managedFields", default=())


class _ManagedObject(Struct, frozen=True):
    metadata: _ManagedMeta


def read_pod(raw: Raw, kind: type[Pod]) -> Pod | Rejected:
    """Decode a pod, and whether its nomination is that of another component."""
    found = parse_object(raw, kind)
    if isinstance(found, Rejected) or not found.status.nominated_node_name or found.spec.node_name:
        return found
    return replace(found, is_nominated_by_other=_has_other_manager(raw))


def own_nomination(pod: Pod) -> str:
    """Return the node that this scheduler has nominated a pod to; empty if there is none."""
    return "" if pod.is_nominated_by_other else pod.status.nominated_node_name


def _has_other_manager(raw: Raw) -> bool:
    """Return whether another component manages the nomination of a pod, perhaps beside us."""
    try:
        managed = decode(raw, _ManagedObject).metadata.managed
    except msgspec.DecodeError:
        return False
    owners = {entry.manager for entry in managed if entry.fields.status.nomination is not UNSET}
    return bool(owners - {FIELD_MANAGER})
