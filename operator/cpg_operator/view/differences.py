"""What two states of one object differ in, as far as that matters to the operator. Pure."""

from typing import TypeAlias

import msgspec

from cpg_api.conditions import find_condition, status_since
from cpg_api.drift import MATCHES_TEMPLATE
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.compositepodgroup import CompositePodGroupStatus
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.health import HEALTHY
from cpg_api.scheduling.names import FINALIZER, INSTANTIATED
from cpg_api.scheduling.partial_release import PARTIAL
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_api.scheduling.workload import Workload
from cpg_operator.writes import MANAGER, Verb, Write

Status: TypeAlias = PodGroupStatus | CompositePodGroupStatus


def is_newer(known: ObjectMeta, found: ObjectMeta) -> bool:
    """Return whether a state replaces the known one: sweep, Kopf and answers arrive in any order."""
    if known.uid != found.uid or not (known.resource_version.isdigit() and found.resource_version.isdigit()):
        return known != found
    return int(known.resource_version) < int(found.resource_version)


def has_foreign_change(known: Group, found: Group) -> bool:
    """Return whether something differs that the steps read and the operator does not write."""
    return _foreign_part(known) != _foreign_part(found)


def has_unexpected_status(known: Group, write: Write, found: Group) -> bool:
    """Return whether our part of the status, in the answer to a write, is not what the write should have made of it."""
    return _own_part(found.status) != _own_part(_expected_status(known, write))


def has_user_change(known: Workload, found: Workload) -> bool:
    """Return whether something differs in a Workload that the steps read and the operator does not write."""
    return _user_part(known) != _user_part(found)


def _foreign_part(group: Group) -> tuple[object, ...]:
    """Return what the steps read of a group, without health, counts and our finalizer."""
    meta, conditions = group.metadata, group.status.conditions
    return (
        group.spec,
        (meta.uid, meta.deletion_timestamp, meta.labels, meta.annotations, meta.owner_references),
        [name for name in meta.finalizers if name != FINALIZER],
        [one for one in conditions or () if one.type not in {HEALTHY, PARTIAL, MATCHES_TEMPLATE}],
        status_since(conditions, PARTIAL),  # the time until the release of a partial tree counts from here
    )


def _user_part(workload: Workload) -> tuple[object, ...]:
    meta = workload.metadata
    annotations = {name: value for name, value in meta.annotations.items() if name != INSTANTIATED}
    return workload.spec, meta.uid, meta.deletion_timestamp, annotations, meta.labels, meta.owner_references


def _own_part(status: Status) -> tuple[object, ...]:
    """Return health and counts, the operator's part of a status."""
    groups = status.groups if isinstance(status, CompositePodGroupStatus) else None
    conditions = [find_condition(status.conditions, kind) for kind in (HEALTHY, PARTIAL)]
    return status.pods, groups, status.domain, conditions


def _expected_status(known: Group, write: Write) -> Status:
    """Return the status after a write, as far as our own part goes: each apply sends all of it."""
    if write.verb is Verb.APPLY_STATUS and write.manager == MANAGER:
        return msgspec.convert(msgspec.to_builtins(write.body), type(known.status))
    return known.status
