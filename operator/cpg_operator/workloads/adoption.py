"""Gives an owner, such as a JobSet, the Workload from which its groups are made, or several of them.

Sizes are changed in place. Another change of the tree needs a new Workload, because the API fixes templates: the old
one is deleted, and the new one replaces its groups. Their pods derive the same names, so they stay members.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from cpg_api.integrations.trees import OwnerKind, Shape
from cpg_api.manifests import to_manifest
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import (
    DERIVED_FROM,
    EVENT_NOT_ADOPTED,
    EVENT_TREE_REMOVED,
    EVENT_TREE_REPLACED,
)
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.view.owner_index import ServedOwner
from cpg_operator.workloads.derived_trees import derive_trees
from cpg_operator.workloads.jobs import observe_owner
from cpg_operator.workloads.owned_workload import SIZES, has_other_templates, sizes, without_sizes, workload_of
from cpg_operator.writes import NOTHING, EventSpec, StepResult, TreeKey, Verb, Write


def adopt(view: ClusterView, key: TreeKey, scheduler_names: frozenset[str]) -> StepResult:
    """Return the writes that bring the Workloads of an owner up to date; Kubernetes deletes them with the owner."""
    served, owner = view.owners.served(key.anchor.kind), view.owners.get(key.anchor)
    if served is None or (owner is not None and owner.metadata.deletion_timestamp is not None):
        return NOTHING
    known = _workloads_of(view, key, served.kind)
    if owner is None:
        return StepResult(writes=tuple(_remove_orphans(view, key, known.values())))
    observed = observe_owner(view, key, owner)
    if observed is None:
        return NOTHING
    trees = derive_trees(view.owners, key.anchor, served.kind, observed, scheduler_names)
    writes = [_warning(served, owner.metadata, problem) for problem in trees.problems]
    for name, shape in trees.shapes.items():
        writes += _follow(view, key, served, owner.metadata, known.get(name), name, shape)
    for name in known.keys() - trees.shapes.keys() if trees.is_complete else ():
        if _is_controlled_by(known[name], owner.metadata) and not _is_being_deleted(known[name]):
            writes.append(_delete(view, key, known[name]))
    return StepResult(writes=tuple(writes))


def _workloads_of(view: ClusterView, key: TreeKey, kind: OwnerKind) -> dict[str, Workload]:
    """Return the Workloads that have names of an owner; the owner of a composed kind may have several."""
    workloads, name = view.workloads(key.flavour), f"{kind.prefix}.{key.anchor.name}"
    if kind.compose is not None:
        places = [place for place in workloads if place[0] == key.anchor.namespace and place[1].startswith(f"{name}.")]
    else:
        places = [place for place in ((key.anchor.namespace, name),) if place in workloads]
    return {place[1]: workloads[place] for place in places}


def _remove_orphans(view: ClusterView, key: TreeKey, known: Iterable[Workload]) -> Iterator[Write]:
    """Yield the deletions of Workloads of an owner that was deleted without its dependents."""
    for found in known:
        if _is_orphan(found, key.anchor) and not _is_being_deleted(found) and view.owners.is_gone(key.anchor):
            yield _delete(view, key, found)


def _follow(
    view: ClusterView,
    key: TreeKey,
    served: ServedOwner,
    owner: ObjectMeta,
    found: Workload | None,
    name: str,
    shape: Shape,
) -> Iterator[Write]:
    """Yield the writes that bring one Workload up to date."""
    if found is not None and _is_being_deleted(found):
        return
    if shape.spec is not None and not (shape.rests and found is None):
        wanted = workload_of(owner, served.resource, served.kind, name, shape, native=key.flavour != CRD)
        yield from _update(view, key, served, owner, found, wanted)
    elif found is not None and _is_controlled_by(found, owner) and not shape.rests and not shape.problems:
        note = f"no pod template of it names our scheduler any more: Workload {name} is removed"
        yield _event(served, owner, EVENT_TREE_REMOVED, note, found)
        yield _delete(view, key, found)


def _is_being_deleted(found: Workload) -> bool:
    return found.metadata.deletion_timestamp is not None


def _is_orphan(found: Workload, owner: GroupKey) -> bool:
    """Return whether a Workload was made for an owner of this name, and has lost its controller."""
    return _is_made_for(found, owner) and not any(one.controller for one in found.metadata.owner_references)


def _is_made_for(found: Workload, owner: GroupKey) -> bool:
    return found.metadata.annotations.get(DERIVED_FROM) == f"{owner.kind.lower()}/{owner.name}"


def _is_controlled_by(found: Workload, owner: ObjectMeta) -> bool:
    return any(one.controller and one.uid == owner.uid for one in found.metadata.owner_references)


def _update(
    view: ClusterView, key: TreeKey, served: ServedOwner, owner: ObjectMeta, found: Workload | None, wanted: Workload
) -> Iterator[Write]:
    """Yield the writes that make, resize or replace a Workload, or the event that says why that is not possible."""
    resource = view.kinds[key.flavour][Workload]
    if found is None:
        body = to_manifest(wanted, native=key.flavour != CRD) | {"apiVersion": resource.api_version}
        yield Write(verb=Verb.CREATE, resource=resource, target=wanted.metadata, part="whole", body=body)
    elif not _is_controlled_by(found, owner):
        if _is_made_for(found, key.anchor):  # an earlier owner of this name; Kubernetes would delete it later
            yield _delete(view, key, found)
        else:
            note = f"Workload {found.metadata.name} exists and was not made for it; it is left unchanged"
            yield _warning(served, owner, note)
    elif has_other_templates(found, wanted):
        note = f"its tree has changed in more than sizes: Workload {found.metadata.name} and its groups are made anew"
        yield _event(served, owner, EVENT_TREE_REPLACED, note, found)
        yield _delete(view, key, found)
    else:
        if without_sizes(found.spec) != without_sizes(wanted.spec):
            note = f"the API server has not kept all fields of Workload {found.metadata.name}: is a feature gate off?"
            yield _warning(served, owner, note)
        if sizes(found) != sizes(wanted):
            yield _resize(view, key, found, wanted)


def _resize(view: ClusterView, key: TreeKey, found: Workload, wanted: Workload) -> Write:
    """Return the write of templates with other sizes."""
    before, after = found.metadata.annotations, wanted.metadata.annotations
    changed = {name: after.get(name) for name in SIZES if before.get(name) != after.get(name)}
    body: dict[str, Any] = {"spec": to_manifest(wanted, native=key.flavour != CRD)["spec"]}
    if changed:
        body["metadata"] = {"annotations": changed}
    resource = view.kinds[key.flavour][Workload]
    return Write(verb=Verb.MERGE, resource=resource, target=found.metadata, part="templates", body=body)


def _delete(view: ClusterView, key: TreeKey, found: Workload) -> Write:
    resource = view.kinds[key.flavour][Workload]
    return Write(verb=Verb.DELETE, resource=resource, target=found.metadata, part="whole")


def _warning(served: ServedOwner, owner: ObjectMeta, note: str) -> Write:
    """Return an event about what keeps the tree from being as the owner says."""
    spec = EventSpec(reason=EVENT_NOT_ADOPTED, note=note, warning=True)
    return Write(
        verb=Verb.EVENT, resource=served.resource, target=owner, part="adoption", body={"note": note}, event=spec
    )


def _event(served: ServedOwner, owner: ObjectMeta, reason: str, note: str, about: Workload) -> Write:
    """Return an event about the end of a Workload, one for each of them."""
    body = {"reason": reason, "workload": about.metadata.uid}
    spec = EventSpec(reason=reason, note=note)
    return Write(verb=Verb.EVENT, resource=served.resource, target=owner, part="tree", body=body, event=spec)
