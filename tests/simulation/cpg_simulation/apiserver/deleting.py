"""Deletes objects: at once, after a grace period, or once the last finalizer is gone."""

from typing import Any

import msgspec

from cpg_simulation.apiserver.defaults import seconds_of, timestamp
from cpg_simulation.apiserver.kinds import NAMESPACES, PODS
from cpg_simulation.apiserver.refusals import SUCCESS, conflict
from cpg_simulation.apiserver.storage import Stored
from cpg_simulation.apiserver.transactions import Call, Transactions
from cpg_simulation.apiserver.values import Answer, Object


def delete(transactions: Transactions, call: Call) -> Answer:
    """Delete an object."""
    options = call.object_body() if call.request.body else {}
    old = transactions.find(call)
    _check_preconditions(call, old.value["metadata"], options.get("preconditions") or {})
    is_dry = bool(options.get("dryRun")) or "dryRun" in call.request.query
    grace = options.get("gracePeriodSeconds", call.request.query.get("gracePeriodSeconds"))
    stored = _marked(transactions, call, old, None if grace is None else int(grace), is_dry=is_dry)
    if stored is None:
        return Answer(200, old.body)
    if "deletionTimestamp" in stored.value["metadata"] and not is_over(stored.value):
        return Answer(200, stored.body)
    return _removed(transactions, call, stored, is_dry=is_dry)


def _removed(transactions: Transactions, call: Call, old: Stored, *, is_dry: bool) -> Answer:
    if call.kind is not PODS:  # those were checked when they were marked
        transactions.check(call, old, None)
    if not is_dry:
        transactions.remove(call, "delete", old)
    if call.kind.returns_deleted:
        return Answer(200, old.body)
    resource = call.kind.resource
    group = {"group": resource.group} if resource.group else {}
    details = {"name": call.name, **group, "kind": resource.plural, "uid": old.value["metadata"]["uid"]}
    return Answer(200, msgspec.json.encode({**SUCCESS, "details": details}))


def is_over(found: Object) -> bool:
    """Return whether an object is being deleted and nothing holds it any more."""
    metadata = found["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (found["kind"] == NAMESPACES.resource.kind and found["spec"].get("finalizers"))
    )


def _marked(transactions: Transactions, call: Call, old: Stored, grace: int | None, *, is_dry: bool) -> Stored | None:
    """Return an object as it is marked for its deletion, or None where its deletion is under way already."""
    found, metadata, start = old.value, old.value["metadata"], int(transactions.now())
    if call.kind is not PODS:
        held = metadata.get("finalizers") or (call.kind is NAMESPACES and found["spec"].get("finalizers"))
        if not held or "deletionTimestamp" in metadata:
            return old
        grace = 0
    elif "deletionTimestamp" not in metadata:
        grace = _pod_grace(found, grace)
    else:
        before = metadata["deletionGracePeriodSeconds"]
        if grace is None or grace >= before:
            return None
        start = seconds_of(metadata["deletionTimestamp"]) - before
    return _mark(transactions, call, old, start, grace, is_dry=is_dry)


def _pod_grace(pod: Object, asked: int | None) -> int:
    """Return the seconds of grace of a pod; one that never runs (again) has none."""
    if not pod["spec"].get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    seconds = pod["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return int(seconds) if seconds >= 0 else 1


def _mark(transactions: Transactions, call: Call, old: Stored, start: int, grace: int, *, is_dry: bool) -> Stored:
    found = old.plain
    metadata = {
        **found["metadata"],
        "deletionTimestamp": timestamp(start + grace),
        "deletionGracePeriodSeconds": grace,
    }
    if "generation" in metadata and "deletionTimestamp" not in found["metadata"]:
        metadata["generation"] += 1
    new = {**found, "metadata": metadata}
    if call.kind is NAMESPACES:
        new["status"] = {**found["status"], "phase": "Terminating"}
    return transactions.commit(call, "delete", new, old.managed, is_dry=is_dry)


def _check_preconditions(call: Call, metadata: Object, wanted: dict[str, Any]) -> None:
    kind = call.kind.resource.kind
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid is not None and uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']})."
            " The object might have been deleted and then recreated"
        )
        raise conflict(call.kind, call.name, why, kind)
    if version is not None and version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record"
            f" ({metadata['resourceVersion']}). The object might have been modified"
        )
        raise conflict(call.kind, call.name, why, kind)
