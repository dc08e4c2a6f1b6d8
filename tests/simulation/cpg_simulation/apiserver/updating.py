"""Changes objects: PUT, the patches and server-side apply."""

from cpg_simulation.apiserver.creating import check_type, create_object
from cpg_simulation.apiserver.defaults import normalised, without_status
from cpg_simulation.apiserver.deleting import is_over
from cpg_simulation.apiserver.kinds import CLAIM_TEMPLATES, PODS, RESOURCE_CLAIMS, Kind
from cpg_simulation.apiserver.managed import Managed, apply
from cpg_simulation.apiserver.patches import json_patch, merge, strategic_merge
from cpg_simulation.apiserver.refusals import RefusedError, bad_request, conflict, invalid, not_found
from cpg_simulation.apiserver.schemas import schema_of
from cpg_simulation.apiserver.storage import Stored
from cpg_simulation.apiserver.transactions import Call, Transactions
from cpg_simulation.apiserver.values import Answer, Object

MERGE, STRATEGIC, JSON, APPLY = (
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/apply-patch+yaml",
)
SERVERS_OWN = (
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
)
"""Metadata that no client changes."""
KEPT_BY_STATUS = ("labels", "annotations", "finalizers", "ownerReferences")
CHANGEABLE_OF_POD = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
CHANGEABLE_WHILE_GATED = {"nodeSelector", "affinity"}


def put(transactions: Transactions, call: Call) -> Answer:
    """Replace an object."""
    body = call.object_body()
    check_type(call.kind, body)
    metadata = body.get("metadata") or {}
    if metadata.get("name", "") != call.name:
        raise bad_request(f"the name of the object ({metadata.get('name')}) does not match the name on the URL")
    if call.kind.is_created_by_put and transactions.storage.get(call.kind, call.key) is None:
        return _create_missing(transactions, call, body)
    old = transactions.find(call)
    uid = old.value["metadata"]["uid"]
    if metadata.get("uid", uid) != uid:
        why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
        raise conflict(call.kind, call.name, why)
    if call.kind.needs_version and not metadata.get("resourceVersion"):
        why = "Invalid value: 0: must be specified for an update"
        raise invalid(call.kind, call.name, "metadata.resourceVersion", why, named=call.kind.resource.plural)
    return _update(transactions, call, old, body, "update")


def finalize(transactions: Transactions, call: Call) -> Answer:
    """Replace the finalizers in the spec of a namespace, which is gone once it has none."""
    body, old = call.object_body(), transactions.find(call)
    return _update(transactions, call, old, {**old.plain, "spec": body.get("spec") or {}}, "update")


def patch(transactions: Transactions, call: Call) -> Answer:
    """Patch an object."""
    content_type = call.request.content_type
    if content_type == APPLY:
        return _apply(transactions, call)
    if content_type not in {MERGE, JSON} | (set() if call.kind.is_custom else {STRATEGIC}):
        raise RefusedError(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
    old = transactions.find(call)
    body = call.body() if content_type == JSON else call.object_body()
    if content_type == STRATEGIC:
        new = strategic_merge(old.plain, body, schema_of(call.kind.resource))
    else:
        new = (merge if content_type == MERGE else json_patch)(old.plain, body)
    return _update(transactions, call, old, new, "patch")


def _apply(transactions: Transactions, call: Call) -> Answer:
    if "fieldManager" not in call.request.query:
        raise bad_request("PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
    config, manager = _reset(call, {"metadata": {}, **call.object_body()}), call.manager(applies=True)
    old = transactions.storage.get(call.kind, call.key)
    if old is None:
        return _create_applied(transactions, call, config)
    force = call.request.query.get("force") == "true"
    new, owners = apply(old.managed, old.plain, config, manager, force=force)
    return _update(transactions, call, old, new, "apply", Managed(call.kind, owners=owners))


def _reset(call: Call, config: Object) -> Object:
    """Return a configuration without the fields that the endpoint does not change."""
    if call.subresource:
        kept = {name: one for name, one in config["metadata"].items() if name not in KEPT_BY_STATUS}
        return {name: kept if name == "metadata" else one for name, one in config.items() if name != "spec"}
    if call.kind.has_status:
        return {name: one for name, one in config.items() if name != "status"}
    return config


def _create_applied(transactions: Transactions, call: Call, config: Object) -> Answer:
    if call.subresource:
        raise not_found(call.kind, call.name)
    _, owners = apply(Managed(call.kind), {}, config, call.manager(applies=True), force=True)
    return _create_missing(transactions, call, config, Managed(call.kind, owners=owners))


def _create_missing(transactions: Transactions, call: Call, body: Object, managed: Managed | None = None) -> Answer:
    """Create an object by a PUT or an apply; its version is ignored, but its UID would be that of another one."""
    metadata = {name: one for name, one in body["metadata"].items() if name != "resourceVersion"}
    if "name" not in metadata:
        raise bad_request(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        )
    if uid := metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict(call.kind, call.name, why)
    body, verb = {**body, "metadata": metadata}, "create" if managed is None else "apply"
    return Answer(201, create_object(transactions, call, body, verb=verb, managed=managed).body)


def _update(
    transactions: Transactions,
    call: Call,
    old: Stored,
    new: Object,
    verb: str,
    managed: Managed | None = None,
) -> Answer:
    """Store a new version if it is based on the present one, or remove what has lost its last finalizer."""
    before = old.plain
    metadata = new.get("metadata") or {}
    version = metadata.get("resourceVersion")
    if version and version != before["metadata"]["resourceVersion"]:
        raise conflict(call.kind, call.name)
    keeps_metadata = call.kind.is_custom and call.subresource == "status"
    if not keeps_metadata and metadata.get("uid", before["metadata"]["uid"]) != before["metadata"]["uid"]:
        why = f'Invalid value: "{metadata["uid"]}": field is immutable'
        raise invalid(call.kind, call.name, "metadata.uid", why)
    new = normalised(call.kind, _prepared(call, before, {**new, "metadata": metadata}), before)
    _validate(call, before, new)
    if is_over(new):
        transactions.check(call, old, new)
        transactions.remove(call, verb, old)
        return Answer(200, Stored(transactions.with_managers(new, old.managed), old.managed).body)
    if managed is None:
        managed = old.managed if new == before else old.managed.updated(call.manager(), before, new)
    return Answer(200, transactions.commit(call, verb, new, managed).body)


def _prepared(call: Call, old: Object, new: Object) -> Object:
    """Return a new version with all that the request cannot change as it was."""
    before, kind = old["metadata"], call.kind
    metadata = _with_old(new["metadata"], before, SERVERS_OWN)
    if call.subresource == "status":
        if not kind.takes_metadata_with_status:
            metadata = before
        elif kind is PODS:
            metadata = _with_old(metadata, before, ("ownerReferences",))
        status = {"status": new["status"]} if new.get("status") is not None else {}
        if kind is PODS:
            status = {"status": {"qosClass": old["status"]["qosClass"], **status.get("status", {})}}
        return {**without_status(old), "metadata": metadata, **status}
    found = _with_old({**new, "metadata": metadata}, old, ("apiVersion", "kind", *(("status",) * kind.has_status)))
    if kind.has_generation and _content(found) != _content(old):
        metadata["generation"] += 1
    return found


def _with_old(new: Object, old: Object, names: tuple[str, ...]) -> Object:
    others = {name: one for name, one in new.items() if name not in names}
    return others | {name: old[name] for name in names if name in old}


def _content(found: Object) -> Object:
    return {name: one for name, one in found.items() if name not in ("metadata", "status")}


def _validate(call: Call, old: Object, new: Object) -> None:
    before, after = old["metadata"].get("finalizers") or [], new["metadata"].get("finalizers") or []
    added = [one for one in after if one not in before]
    if added and "deletionTimestamp" in old["metadata"]:
        names = ", ".join(f'"{one}"' for one in added)
        why = (
            "Forbidden: no new finalizers can be added if the object is being deleted,"
            f" found new finalizers []string{{{names}}}"
        )
        raise invalid(call.kind, call.name, "metadata.finalizers", why, "FieldValueForbidden")
    if call.kind is PODS:
        _validate_pod(call.kind, call.name, old, new)
    if call.kind in {RESOURCE_CLAIMS, CLAIM_TEMPLATES} and old.get("spec") != new.get("spec"):
        raise invalid(call.kind, call.name, "spec", "Invalid value: field is immutable")
    if call.kind is RESOURCE_CLAIMS:
        _validate_allocation(call, old, new)
        _validate_users(call, old, new)


def _validate_allocation(call: Call, old: Object, new: Object) -> None:
    before, after = old["status"].get("allocation"), new["status"].get("allocation")
    if after is None or before == after:
        return
    if before is not None:
        raise invalid(call.kind, call.name, "status.allocation", "Invalid value: field is immutable")
    known = {one["name"] for one in new["spec"]["devices"]["requests"]}
    for number, result in enumerate(after["devices"]["results"]):
        if result["request"] not in known:
            field = f"status.allocation.devices.results[{number}].request"
            raise invalid(call.kind, call.name, field, "Invalid value: must be the name of a request in the claim")


def _validate_users(call: Call, old: Object, new: Object) -> None:
    before, after = old["status"].get("reservedFor") or (), new["status"].get("reservedFor") or ()
    why = ""
    if after and "allocation" not in new["status"]:
        why = "may not be specified when `allocated` is not set"
    elif "deletionTimestamp" in old["metadata"] and any(one not in before for one in after):
        why = "new entries may not be added while the claim is being deleted"
    if why:
        raise invalid(call.kind, call.name, "status.reservedFor", f"Forbidden: {why}", "FieldValueForbidden")


def _validate_pod(kind: Kind, name: str, before: Object, after: Object) -> None:
    old, new, nominated = before["spec"], after["spec"], after["status"].get("nominatedNodeName")
    if "nodeName" in new and nominated and nominated != before["status"].get("nominatedNodeName"):
        why = "Forbidden: may not be set on pods that are already bound to a node"
        raise invalid(kind, name, "status.nominatedNodeName", why, "FieldValueForbidden")
    if new is old:
        return
    gates = [one["name"] for one in old.get("schedulingGates") or ()]
    allowed = CHANGEABLE_OF_POD | (CHANGEABLE_WHILE_GATED if gates else set())
    if len(old["containers"]) != len(new["containers"]):
        why = "Forbidden: pod updates may not add or remove containers"
        raise invalid(kind, name, "spec.containers", why, "FieldValueForbidden")
    if any(one["name"] not in gates for one in new.get("schedulingGates") or ()):
        why = "Forbidden: only deletion is allowed, but found new scheduling gate"
        raise invalid(kind, name, "spec.schedulingGates", why, "FieldValueForbidden")
    if _without_images(old, allowed) != _without_images(new, allowed):
        why = "Forbidden: pod updates may not change fields other than those of the list"
        raise invalid(kind, name, "spec", why, "FieldValueForbidden")


def _without_images(spec: Object, allowed: set[str]) -> Object:
    return {
        name: [{**one, "image": ""} for one in part] if name in ("containers", "initContainers") else part
        for name, part in spec.items()
        if name not in allowed
    }
