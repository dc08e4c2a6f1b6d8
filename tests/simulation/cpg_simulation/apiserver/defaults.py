"""What the API server adds to a new object: defaults, the priority, and the first status."""

import calendar
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cpg_client.resources import (
    LEASES,
    NAMESPACES,
    NATIVE_GROUP,
    NATIVE_POD_GROUPS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    STORAGE_CLASSES,
)
from cpg_lab.devices import CLAIM_TEMPLATES
from cpg_simulation.apiserver.kinds import Kind
from cpg_simulation.apiserver.schemas import default_schema_of, with_defaults
from cpg_simulation.apiserver.values import Object

POD_DEFAULTS: Final = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": "default-scheduler",
    "enableServiceLinks": True,
}
CONTAINER_DEFAULTS: Final[Object] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
BUDGET_STATUS: Final = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}
TOLERATED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
GATED: Final = "Scheduling is blocked due to non-empty scheduling gates"


def timestamp(seconds: float) -> str:
    """Return a time in whole seconds, as in metadata."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def seconds_of(stamp: str) -> int:
    """Return the seconds of the epoch of a time in metadata."""
    return calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))


def completed(kind: Kind, found: Object, classes: Iterable[Object], now: str) -> Object:
    """Return a new object with all that the API server adds, except its metadata."""
    if kind.is_custom:
        return without_status(found)
    add = _ADDITIONS.get(kind.resource)
    return add(found, classes, now) if add is not None else found


def without_status(found: Object) -> Object:
    """Return an object without its status."""
    return {name: value for name, value in found.items() if name != "status"}


def normalised(kind: Kind, found: Object, old: Object | None = None) -> Object:
    """Return an object as its type is encoded: defaults are spelled out, empty fields are left out."""
    complete = _DEFAULTS.get(kind.resource)
    if complete is not None and (old is None or found.get("spec") is not old.get("spec")):
        found = complete(found)
    return tidied(kind, found)


def tidied(kind: Kind, found: Object) -> Object:
    """Return an object without empty fields, and with the defaults of its schema."""
    metadata = {name: value for name, value in found["metadata"].items() if value not in ("", None, {}, [])}
    found = {**found, "metadata": metadata}
    if kind.has_status and not kind.is_custom:
        status = {name: value for name, value in (found.get("status") or {}).items() if value not in ("", None, [])}
        if kind.resource == PODS and "conditions" in status:
            times = {"lastProbeTime": None, "lastTransitionTime": None}
            status["conditions"] = [times | condition for condition in status["conditions"]]
        found["status"] = status
    schema = default_schema_of(kind.resource)
    return with_defaults(schema, found) if schema is not None else found


def _pod_defaults(found: Object) -> Object:
    spec = POD_DEFAULTS | found.get("spec", {})
    for name in ("containers", "initContainers"):
        if name in spec:
            spec[name] = [_container(one) for one in spec[name]]
    return {**found, "spec": spec}


def _pod(found: Object, classes: Iterable[Object], now: str) -> Object:
    spec = dict(found["spec"])
    tolerated = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
        for key in TOLERATED
        if not any(one.get("key", key) == key and one.get("effect", "NoExecute") == "NoExecute" for one in tolerated)
    ]
    if tolerated or added:
        spec["tolerations"] = [*tolerated, *added]
    spec |= _priority(spec, classes)
    status: Object = {"phase": "Pending", "qosClass": _qos(spec)}
    if spec.get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": GATED,
            }
        ]
    return {**found, "spec": spec, "status": status}


def _container(found: Object) -> Object:
    image = str(found.get("image", ""))
    is_latest = ":" not in image.rsplit("/", 1)[-1] or image.endswith(":latest")
    found = CONTAINER_DEFAULTS | {"imagePullPolicy": "Always" if is_latest else "IfNotPresent"} | found
    if "ports" in found:
        found["ports"] = [{"protocol": "TCP"} | port for port in found["ports"]]
    resources = found["resources"]
    if "limits" in resources:
        found["resources"] = resources | {"requests": resources["limits"] | resources.get("requests", {})}
    return found


def _qos(spec: Object) -> str:
    found = [one["resources"] for name in ("containers", "initContainers") for one in spec.get(name, ())]
    names = ("cpu", "memory")
    if not any(name in one.get(part, {}) for one in found for part in ("requests", "limits") for name in names):
        return "BestEffort"
    is_guaranteed = all(
        name in one.get("limits", {}) and one["limits"][name] == one["requests"].get(name)
        for one in found
        for name in names
    )
    return "Guaranteed" if is_guaranteed else "Burstable"


def _priority(spec: Object, classes: Iterable[Object]) -> Object:
    """Return the priority of a pod or group by its class, or by the default class."""
    found = [*classes]
    name = spec.get("priorityClassName")
    if name:
        (chosen,) = (one for one in found if one["metadata"]["name"] == name)
    else:
        defaults = [one for one in found if one.get("globalDefault")]
        chosen = min(defaults, key=lambda one: one["value"], default={"value": 0, "metadata": {}})
        name = chosen["metadata"].get("name")
    named = {"priorityClassName": name} if name else {}
    policy = spec.get("preemptionPolicy") or chosen.get("preemptionPolicy", "PreemptLowerPriority")
    return {**named, "priority": chosen["value"], "preemptionPolicy": policy}


def _native_group(found: Object, classes: Iterable[Object], _: str) -> Object:
    spec, metadata = found.get("spec", {}), found["metadata"]
    protection = f"{NATIVE_GROUP}/podgroup-protection"
    finalizers = [*(one for one in metadata.get("finalizers") or () if one != protection), protection]
    spec = spec | _priority(spec, classes)
    return {**without_status(found), "metadata": {**metadata, "finalizers": finalizers}, "spec": spec}


def _namespace(found: Object, *_: object) -> Object:
    metadata = found["metadata"]
    labels = {"kubernetes.io/metadata.name": metadata["name"], **(metadata.get("labels") or {})}
    spec = {"finalizers": ["kubernetes"]}
    return {**found, "metadata": {**metadata, "labels": labels}, "spec": spec, "status": {"phase": "Active"}}


def _with_finalizer(found: Object, finalizer: str) -> Object:
    metadata = found["metadata"]
    others = [one for one in metadata.get("finalizers") or () if one != finalizer]
    return {**metadata, "finalizers": [*others, finalizer]}


def _volume(found: Object, _: object, now: str) -> Object:
    return {
        **found,
        "metadata": _with_finalizer(found, "kubernetes.io/pv-protection"),
        "status": {"phase": "Pending", "lastPhaseTransitionTime": now},
    }


def _volume_claim(found: Object, *_: object) -> Object:
    return {
        **found,
        "metadata": _with_finalizer(found, "kubernetes.io/pvc-protection"),
        "status": {"phase": "Pending"},
    }


def _budget(found: Object, *_: object) -> Object:
    return {**found, "status": BUDGET_STATUS}


def _lease_defaults(found: Object) -> Object:
    return {"spec": {}} | found


def _volume_defaults(found: Object) -> Object:
    spec = {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"} | found.get("spec", {})
    return {**found, "spec": spec}


def _volume_claim_defaults(found: Object) -> Object:
    return {**found, "spec": {"volumeMode": "Filesystem"} | found.get("spec", {})}


def _device_claim(found: Object, *_: object) -> Object:
    return without_status(found)


def _device_claim_defaults(found: Object) -> Object:
    spec, added = found.get("spec", {}), {"allocationMode": "ExactCount", "count": 1}
    devices = spec.get("devices") or {}
    requests = []
    for one in devices.get("requests") or ():
        exactly = one.get("exactly")
        is_all = exactly is None or exactly.get("allocationMode", "ExactCount") != "ExactCount"
        requests.append(one if is_all else {**one, "exactly": added | exactly})
    devices = {**devices, "requests": requests} if requests else devices
    return {**found, "spec": {**spec, "devices": devices}}


def _claim_template_defaults(found: Object) -> Object:
    spec = found.get("spec") or {}
    claim = _device_claim_defaults({"spec": spec.get("spec") or {}})
    return {**without_status(found), "spec": {"metadata": {}, **spec, **claim}}


def _storage_class_defaults(found: Object) -> Object:
    return {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"} | found


def _priority_class_defaults(found: Object) -> Object:
    return {"preemptionPolicy": "PreemptLowerPriority"} | found


_ADDITIONS: Mapping[Any, Callable[[Object, Iterable[Object], str], Object]] = {
    PODS: _pod,
    NAMESPACES: _namespace,
    PERSISTENT_VOLUMES: _volume,
    PERSISTENT_VOLUME_CLAIMS: _volume_claim,
    POD_DISRUPTION_BUDGETS: _budget,
    RESOURCE_CLAIMS: _device_claim,
    NATIVE_POD_GROUPS: _native_group,
}
"""What is added to a new object."""
_DEFAULTS: Mapping[Any, Callable[[Object], Object]] = {
    PODS: _pod_defaults,
    LEASES: _lease_defaults,
    PERSISTENT_VOLUMES: _volume_defaults,
    PERSISTENT_VOLUME_CLAIMS: _volume_claim_defaults,
    RESOURCE_CLAIMS: _device_claim_defaults,
    CLAIM_TEMPLATES: _claim_template_defaults,
    STORAGE_CLASSES: _storage_class_defaults,
    PRIORITY_CLASSES: _priority_class_defaults,
}
"""Defaults of the type, of which each version has all."""
