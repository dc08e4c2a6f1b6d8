"""Random sequences of requests, as data: what depends on the answers of a server is named and filled in later."""

from collections.abc import Sequence
from random import Random
from typing import Any, Literal

from msgspec import Struct

from cpg_client import resources
from cpg_client.connection import APPLY_YAML, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from cpg_client.resources import Resource
from cpg_lab.devices import CLAIM_TEMPLATES

STEPS = 40
MANAGERS = ("red", "green", "blue")
CONDITIONS = ("Ready", "Healthy", "Late")
TIME = "2026-01-02T03:04:05Z"
Body = dict[str, Any]


class Step(Struct, frozen=True, kw_only=True):
    """One request. ``uid`` and ``version`` are filled in from what the server has answered about the object."""

    method: str
    resource: Resource
    name: str = ""
    subresource: str | None = None
    body: Any = None
    content_type: str = "application/json"
    query: dict[str, str] = {}
    uid: Literal["", "right", "wrong"] = ""
    version: Literal["", "right", "stale"] = ""
    replaces: bool = False
    """Whether the body is merged into the present object, for a PUT."""


def _pod(rng: Random) -> Body:
    containers: list[Body] = [{"name": name, "image": "one"} for name in ("main", "side")[: rng.randint(1, 2)]]
    requests = {"cpu": rng.choice(("1", "500m")), "memory": "1Gi"}
    part = rng.choice(("requests", "limits", ""))
    if part:
        containers[0] |= {"resources": {part: requests}}
    spec: Body = {"containers": containers}
    if rng.random() < 0.3:
        spec["terminationGracePeriodSeconds"] = rng.choice((0, 5, 60))
    if rng.random() < 0.3:
        spec["priorityClassName"] = rng.choice(("system-node-critical", "system-cluster-critical", "unknown"))
    if rng.random() < 0.2:
        spec["schedulingGates"] = [{"name": "example.com/wait"}]
    elif rng.random() < 0.2:
        spec["nodeName"] = "elsewhere"
    return {"spec": spec}


def _custom_group(rng: Random) -> Body:
    gang = {"minCount": rng.randint(1, 3)}
    return {**_typed(resources.CPG_POD_GROUPS), "spec": {"schedulingPolicy": {"gang": gang}}}


def _native_group(rng: Random) -> Body:
    return {"spec": {"schedulingPolicy": {"gang": {"minCount": rng.randint(1, 3)}}}}


def _lease(rng: Random) -> Body:
    return {"spec": {"holderIdentity": rng.choice(MANAGERS), "leaseDurationSeconds": 10}}


def _budget(rng: Random) -> Body:
    return {"spec": {"minAvailable": rng.randint(0, 2), "selector": {"matchLabels": {"color": rng.choice(MANAGERS)}}}}


def _device_claim(_: Random) -> Body:
    return {"spec": {"devices": {"requests": [_device_request("one")]}}}


def _device_request(name: str) -> Body:
    return {"name": name, "exactly": {"deviceClassName": "example.com"}}


def _claim_template(rng: Random) -> Body:
    return {"spec": _device_claim(rng)}


def _volume_claim(_: Random) -> Body:
    return {"spec": {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}}


KINDS = {
    resources.PODS: _pod,
    resources.CPG_POD_GROUPS: _custom_group,
    resources.NATIVE_POD_GROUPS: _native_group,
    resources.LEASES: _lease,
    resources.POD_DISRUPTION_BUDGETS: _budget,
    resources.RESOURCE_CLAIMS: _device_claim,
    CLAIM_TEMPLATES: _claim_template,
    resources.PERSISTENT_VOLUME_CLAIMS: _volume_claim,
}
WEIGHTS = (8, 6, 3, 2, 2, 6, 1, 1)
CONDITIONED = (
    resources.PODS,
    resources.CPG_POD_GROUPS,
    resources.NATIVE_POD_GROUPS,
    resources.POD_DISRUPTION_BUDGETS,
    resources.PERSISTENT_VOLUME_CLAIMS,
)


def generate(seed: int) -> Sequence[Step]:
    """Return a random sequence; one seed returns the same one always."""
    rng = Random(seed)  # noqa: S311 - no secret
    return [_step(rng) for _ in range(STEPS)]


def creation(resource: Resource, name: str) -> Step:
    """Return the creation of an object with a name and a label."""
    body = KINDS[resource](Random(0))  # noqa: S311 - no secret
    return Step(method="POST", resource=resource, body=body | {"metadata": {"name": name, "labels": {"color": "red"}}})


def _step(rng: Random) -> Step:
    (resource,) = rng.choices([*KINDS], WEIGHTS)
    name = rng.choice(("a", "b")) if resource == resources.PODS else "a"
    actions = {
        _create: 5,
        _merge: 4,
        _strategic: 3,
        _json: 2,
        _apply: 6,
        _put: 3,
        _delete: 3,
        _status: 6,
        _bind: 3 if resource == resources.PODS else 0,
    }
    (action,) = rng.choices([*actions], [*actions.values()])
    step = action(rng, resource, name)
    return _dry(step) if rng.random() < 0.05 and action is not _delete else step


def _dry(step: Step) -> Step:
    fields = {field: getattr(step, field) for field in step.__struct_fields__}
    return Step(**{**fields, "query": {**step.query, "dryRun": "All"}})


def _typed(resource: Resource) -> Body:
    return {"apiVersion": resource.api_version, "kind": resource.kind}


def _identity(rng: Random) -> dict[str, Any]:
    return {
        "uid": rng.choices(("", "right", "wrong"), (6, 3, 1))[0],
        "version": rng.choices(("", "right", "stale"), (6, 2, 2))[0],
    }


def _metadata(rng: Random, resource: Resource, *, may_remove: bool = True) -> Body:
    """Return changes of metadata. Custom resources store empty fields, and write anew when these are gone."""
    found: Body = {}
    absent = [None] if may_remove else []
    for name in rng.sample(("labels", "annotations", "finalizers", "ownerReferences"), rng.randint(0, 2)):
        if name == "finalizers":
            found[name] = rng.choice([["example.com/one"], ["example.com/one", "example.com/two"], [], *absent])
        elif name == "ownerReferences":
            owner = {"apiVersion": "v1", "kind": "Pod", "name": "owner"}
            found[name] = [owner | {"uid": uid} for uid in rng.sample(("u1", "u2"), rng.randint(0, 2))]
        else:
            found[name] = rng.choice([{"color": rng.choice([*MANAGERS, *absent])}, {"shape": "round"}, {}, *absent])
    return {name: one for name, one in found.items() if one not in ({}, []) or resource != resources.CPG_POD_GROUPS}


def _spec(rng: Random, resource: Resource) -> Body:
    """Return a change of a spec."""
    changes: dict[Resource, list[Body]] = {
        resources.PODS: [
            {"schedulingGates": None},
            {"schedulingGates": [{"name": "example.com/other"}]},
            {"activeDeadlineSeconds": 100},
            {"nodeName": "other"},
            {"restartPolicy": "Never"},
        ],
        resources.LEASES: [{"holderIdentity": rng.choice(MANAGERS)}, {"holderIdentity": None}],
        resources.POD_DISRUPTION_BUDGETS: [{"minAvailable": rng.randint(0, 2)}],
        resources.CPG_POD_GROUPS: [{"schedulingPolicy": {"gang": {"minCount": rng.randint(1, 3)}}}],
        resources.RESOURCE_CLAIMS: [{"devices": {"requests": [_device_request("two")]}}, {"devices": None}],
        CLAIM_TEMPLATES: [{"metadata": {"labels": {"color": "red"}}}],
    }
    return rng.choice([*changes.get(resource, []), {}])


def _conditions(rng: Random, resource: Resource, *, spelled: bool = True) -> list[Body]:
    found = []
    for kind in rng.sample(CONDITIONS, rng.randint(0, 2)):
        condition: Body = {"type": kind, "status": rng.choice(("True", "False"))}
        if spelled or resource != resources.PODS:
            condition |= {"reason": "Because", "message": rng.choice(MANAGERS), "lastTransitionTime": TIME}
        found.append(condition)
    return found


def _status_fields(rng: Random, resource: Resource) -> Body:
    """Return a change of a status."""
    if resource == resources.RESOURCE_CLAIMS:
        users = [{"resource": "pods", "name": uid, "uid": uid} for uid in rng.sample(("p1", "p2"), rng.randint(0, 2))]
        result = {"request": "one", "driver": "example.com", "pool": "p", "device": rng.choice("ddde")}
        request = rng.choice([{}, {}, {}, {"request": "none"}])
        allocation = {"devices": {"results": [result | request]}}
        return {"reservedFor": users} | rng.choice([{}, {"allocation": None}, *[{"allocation": allocation}] * 3])
    if resource not in CONDITIONED:
        return {}
    found: Body = {"conditions": _conditions(rng, resource, spelled=rng.random() < 0.5)}
    if resource == resources.PODS:
        found |= rng.choice([{}, {"phase": rng.choice(("Running", "Succeeded"))}, {"nominatedNodeName": "n1"}])
        if rng.random() < 0.2:
            del found["conditions"]
    return found


def _create(rng: Random, resource: Resource, name: str) -> Step:
    metadata: Body = {"name": name} | _metadata(rng, resource, may_remove=False)
    if rng.random() < 0.1:
        metadata["resourceVersion"] = "7"
    body = KINDS[resource](rng) | {"metadata": metadata}
    if rng.random() < 0.3 and resource != resources.LEASES:
        body["status"] = _status_fields(rng, resource)
    return Step(method="POST", resource=resource, body=body, query={"fieldManager": rng.choice(MANAGERS)})


def _merge(rng: Random, resource: Resource, name: str) -> Step:
    body: Body = {"metadata": _metadata(rng, resource)}
    if rng.random() < 0.5:
        body["spec"] = _spec(rng, resource)
    query = {"fieldManager": rng.choice(MANAGERS)}
    return Step(
        method="PATCH",
        resource=resource,
        name=name,
        body=body,
        content_type=MERGE_PATCH,
        query=query,
        **_identity(rng),
    )


def _strategic(rng: Random, resource: Resource, name: str) -> Step:
    metadata = _metadata(rng, resource)
    if rng.random() < 0.3:
        metadata.pop("finalizers", None)  # Go takes both in no particular order
        metadata["$deleteFromPrimitiveList/finalizers"] = ["example.com/one"]
    if rng.random() < 0.3:
        metadata["ownerReferences"] = [{"$patch": "delete", "uid": "u1"}]
    return Step(
        method="PATCH",
        resource=resource,
        name=name,
        body={"metadata": metadata},
        content_type=STRATEGIC_MERGE_PATCH,
        query={"fieldManager": rng.choice(MANAGERS)},
        **_identity(rng),
    )


def _json(rng: Random, resource: Resource, name: str) -> Step:
    operations = [
        {"op": "add", "path": "/metadata/labels", "value": {"color": rng.choice(MANAGERS)}},
        {"op": "replace", "path": "/metadata/labels/color", "value": rng.choice(MANAGERS)},
        {"op": "remove", "path": "/metadata/labels/color"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "example.com/three"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "test", "path": "/metadata/labels/color", "value": rng.choice(MANAGERS)},
    ]
    body = rng.sample(operations, rng.randint(1, 2))
    return Step(method="PATCH", resource=resource, name=name, body=body, content_type=JSON_PATCH)


def _apply(rng: Random, resource: Resource, name: str) -> Step:
    if rng.random() < 0.7 and resource != resources.LEASES:
        return _applied(rng, resource, name, "status", {"status": _status_fields(rng, resource)})
    body = {**KINDS[resource](rng), "metadata": _metadata(rng, resource, may_remove=False)}
    return _applied(rng, resource, name, None, body)


def _applied(rng: Random, resource: Resource, name: str, subresource: str | None, body: Body) -> Step:
    query = {"fieldManager": rng.choice(MANAGERS)} | rng.choice([{}, {"force": "true"}, {"force": "true"}])
    metadata = {"name": name} | body.get("metadata", {})
    return Step(
        method="PATCH",
        resource=resource,
        name=name,
        subresource=subresource,
        body={**_typed(resource), **body, "metadata": metadata},
        content_type=APPLY_YAML,
        query=query,
        **_identity(rng),
    )


def _put(rng: Random, resource: Resource, name: str) -> Step:
    body: Body = {"metadata": {"name": name} | _metadata(rng, resource)}
    if rng.random() < 0.5:
        body["spec"] = _spec(rng, resource)
    subresource = rng.choice((None, None, "status")) if resource != resources.LEASES else None
    if subresource:
        body["status"] = _status_fields(rng, resource)
    query = {"fieldManager": rng.choice(MANAGERS)}
    return Step(
        method="PUT",
        resource=resource,
        name=name,
        subresource=subresource,
        body=body,
        query=query,
        replaces=True,
        **_identity(rng),
    )


def _delete(rng: Random, resource: Resource, name: str) -> Step:
    body: Body = {}
    if rng.random() < 0.5:
        body["gracePeriodSeconds"] = rng.choice((0, 3, 10, 100))
    if rng.random() < 0.1:
        body["dryRun"] = ["All"]
    return Step(method="DELETE", resource=resource, name=name, body=body, **_identity(rng))


def _status(rng: Random, resource: Resource, name: str) -> Step:
    is_built_in = resource != resources.CPG_POD_GROUPS
    content_type = rng.choice((MERGE_PATCH, STRATEGIC_MERGE_PATCH if is_built_in else MERGE_PATCH))
    status = _status_fields(rng, resource)
    if content_type == STRATEGIC_MERGE_PATCH and rng.random() < 0.3:
        if resource == resources.RESOURCE_CLAIMS:
            status["reservedFor"] = [{"$patch": "delete", "uid": "p1"}]
        elif resource in CONDITIONED:
            status["conditions"] = [*status.get("conditions", ())[:1], {"$patch": "delete", "type": "Healthy"}]
    if rng.random() < 0.2 and status:
        status[rng.choice([*status])] = None
    body: Body = {"metadata": _metadata(rng, resource) if rng.random() < 0.3 else {}, "status": status}
    return Step(
        method="PATCH",
        resource=resource,
        name=name,
        subresource="status",
        body=body,
        content_type=content_type,
        query={"fieldManager": rng.choice(MANAGERS)},
        **_identity(rng),
    )


def _bind(rng: Random, resource: Resource, name: str) -> Step:
    target = {"apiVersion": "v1", "kind": "Node", "name": rng.choice(("n1", "n2"))}
    metadata: Body = {"name": name}
    if rng.random() < 0.2:
        metadata["annotations"] = {"bound": "yes"}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    return Step(method="POST", resource=resource, name=name, subresource="binding", body=body, **_identity(rng))
