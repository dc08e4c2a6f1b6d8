"""Binds pods to nodes."""

import msgspec

from cpg_simulation.apiserver.refusals import SUCCESS, RefusedError, bad_request, conflict
from cpg_simulation.apiserver.transactions import Call, Transactions
from cpg_simulation.apiserver.values import Answer, Object

SCHEDULED = "PodScheduled"


def bind(transactions: Transactions, call: Call) -> Answer:
    """Bind a pod; a conflict means that it is bound, being deleted, or another one."""
    body = call.object_body()
    metadata, node = body.get("metadata") or {}, (body.get("target") or {}).get("name")
    if metadata.get("name", call.name) != call.name:
        raise bad_request("name in URL does not match name in Binding object")
    if not node:
        raise RefusedError(500, "", "target.name: Required value")
    old = transactions.find(call)
    _check(call, old.plain, metadata)
    new = _bound(old.plain, node, metadata, transactions.stamp())
    transactions.commit(call, "bind", new, old.managed)
    return Answer(201, msgspec.json.encode({**SUCCESS, "code": 201}))


def _check(call: Call, pod: Object, wanted: Object) -> None:
    own = pod["metadata"]
    for name, label in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        if wanted.get(name) and wanted[name] != own[name]:
            why = f"Precondition failed: {label} in precondition: {wanted[name]}, {label} in object meta: {own[name]}"
            raise conflict(call.kind, call.name, f"StorageError: invalid object, Code: 4, AdditionalErrorMsg: {why}")
    if "deletionTimestamp" in own:
        why = f"pod {call.name} is being deleted, cannot be assigned to a host"
        raise conflict(call.kind, call.name, why, "pods/binding")
    if bound := pod["spec"].get("nodeName"):
        raise conflict(call.kind, call.name, f'pod {call.name} is already assigned to node "{bound}"', "pods/binding")
    if pod["spec"].get("schedulingGates"):
        why = f"pod {call.name} has non-empty .spec.schedulingGates"
        raise conflict(call.kind, call.name, why, "pods/binding")


def _bound(pod: Object, node: str, binding: Object, now: str) -> Object:
    """Return a bound pod; its nomination has served its purpose."""
    metadata = dict(pod["metadata"])
    for name in ("labels", "annotations"):
        if binding.get(name):
            metadata[name] = {**(metadata.get(name) or {}), **binding[name]}
    status = {name: one for name, one in pod["status"].items() if name != "nominatedNodeName"}
    scheduled = {"type": SCHEDULED, "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = [scheduled if one["type"] == SCHEDULED else one for one in status.get("conditions") or ()]
    status["conditions"] = conditions if scheduled in conditions else [*conditions, scheduled]
    return {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}, "status": status}
