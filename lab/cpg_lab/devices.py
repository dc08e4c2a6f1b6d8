"""Devices without a driver: ResourceSlices, DeviceClasses and claims as plain objects, for tests and benchmarks.

Schedulers and controllers read the same objects that a driver would publish. On simulated nodes there is no kubelet
that would prepare a device.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cpg_client.resources import DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, RESOURCE_SLICES, Resource

Plain = dict[str, Any]
Value = bool | int | str | Mapping[str, Any]
"""The value of an attribute; a mapping is one in full, such as ``{"version": "1.2.0"}``."""

DRIVER: Final = "gpu.example.com"
CLASS: Final = "gpu"
CLAIM_TEMPLATES: Final = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")


# What a driver publishes.


def device(
    name: str, attributes: Mapping[str, Value] | None = None, capacity: Mapping[str, Any] | None = None, **more: object
) -> Plain:
    """Return a device; a capacity is a quantity, or one with its request policy."""
    return {
        "name": name,
        "attributes": {key: _attribute(value) for key, value in (attributes or {}).items()},
        "capacity": {
            key: value if isinstance(value, Mapping) else {"value": value} for key, value in (capacity or {}).items()
        },
        **more,
    }


def gpus(count: int, *, pool: str = "", model: str = "a100", memory: str = "40Gi", **more: object) -> list[Plain]:
    """Return GPUs of one model, the first half of them on NUMA node 0; their uuid begins with the pool's name."""
    return [
        device(
            f"gpu-{index}",
            {"model": model, "index": index, "numa": 2 * index // count, "uuid": f"{pool}-{index}"},
            {"memory": memory},
            **more,
        )
        for index in range(count)
    ]


def resource_slice(
    name: str,
    devices: Sequence[Plain] = (),
    *,
    node: str = "",
    selector: Mapping[str, str] | None = None,
    pool: str = "",
    driver: str = DRIVER,
    generation: int = 1,
    slices: int = 1,
    **spec: object,
) -> Plain:
    """Return a slice of a pool, which by default is called like its node, or like the slice.

    Its devices are of a node, of the nodes that have the selector's labels, or of all nodes; with
    ``perDeviceNodeSelection`` each device has its own.
    """
    where: Plain = {"allNodes": True}
    if node:
        where = {"nodeName": node}
    elif selector:
        where = {"nodeSelector": node_selector(selector)}
    elif "perDeviceNodeSelection" in spec:
        where = {}
    whole = {
        "driver": driver,
        "pool": {"name": pool or node or name, "generation": generation, "resourceSliceCount": slices},
        **where,
        **({"devices": list(devices)} if devices else {}),
        **spec,
    }
    return _manifest(RESOURCE_SLICES, name, spec=whole)


def slices_of_nodes(nodes: Iterable[str], count: int) -> Iterator[Plain]:
    """Yield a slice with so many GPUs for each node."""
    for node in nodes:
        yield resource_slice(f"{node}-gpu", gpus(count, pool=node), node=node)


def node_selector(labels: Mapping[str, str]) -> Plain:
    """Return a node selector that requires labels."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"nodeSelectorTerms": [{"matchExpressions": expressions}]}


def taint_rule(name: str, taint: Mapping[str, str], **selector: str) -> Plain:
    """Return a rule that taints devices by driver, pool and device."""
    return _manifest(DEVICE_TAINT_RULES, name, spec={"deviceSelector": selector, "taint": dict(taint)})


# What users request.


def device_class(name: str = CLASS, select: Sequence[str] = (), **spec: object) -> Plain:
    """Return a class of the devices that all selectors accept; without one, of our driver's."""
    chosen = select or [f'device.driver == "{DRIVER}"']
    return _manifest(DEVICE_CLASSES, name, spec={"selectors": _selectors(chosen), **spec})


def request(name: str = "gpu", *, first_available: Sequence[Plain] = (), **exact: Any) -> Plain:
    """Return a request, of ``requested`` fields, or of alternatives, which have a name each."""
    if first_available:
        return {"name": name, "firstAvailable": [requested(**each) for each in first_available]}
    return {"name": name, "exactly": requested(**exact)}


def requested(
    *,
    device_class_name: str = CLASS,
    count: int = 1,
    all_devices: bool = False,
    select: Sequence[str] = (),
    capacity: Mapping[str, str] | None = None,
    **more: object,
) -> Plain:
    """Return the devices that a request is for: some or all of a class."""
    amount: Plain = {"allocationMode": "All"} if all_devices else {"allocationMode": "ExactCount", "count": count}
    return {
        "deviceClassName": device_class_name,
        **amount,
        **({"selectors": _selectors(select)} if select else {}),
        **({"capacity": {"requests": dict(capacity)}} if capacity else {}),
        **more,
    }


def claim(name: str, *requests: Plain, namespace: str = "default", **devices: object) -> Plain:
    """Return a claim, for one GPU if no request is given; ``constraints`` and ``config`` are those of the API."""
    return _manifest(RESOURCE_CLAIMS, name, namespace, spec=_claim_spec(requests, devices))


def claim_template(name: str, *requests: Plain, namespace: str = "default", **devices: object) -> Plain:
    """Return a template of such a claim."""
    return _manifest(CLAIM_TEMPLATES, name, namespace, spec={"spec": _claim_spec(requests, devices)})


def pod_claims(*names: str, template: str = "") -> Plain:
    """Return the fields of a pod's spec for claims by name, and for one from a template, which is called ``own``."""
    entries = [{"name": name, "resourceClaimName": name} for name in names]
    if template:
        entries.append({"name": "own", "resourceClaimTemplateName": template})
    return {"resourceClaims": entries}


def create_request(manifest: Plain) -> tuple[str, Plain]:
    """Return the path of the collection in which an object is created, and the object."""
    resource = BY_KIND[manifest["kind"]]
    return resource.path(manifest["metadata"].get("namespace")), manifest


BY_KIND: Final = {
    one.kind: one for one in (RESOURCE_SLICES, DEVICE_CLASSES, DEVICE_TAINT_RULES, RESOURCE_CLAIMS, CLAIM_TEMPLATES)
}


def _attribute(value: Value) -> Plain:
    if isinstance(value, Mapping):
        return dict(value)
    return {"bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string": value}


def _selectors(expressions: Sequence[str]) -> list[Plain]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def _claim_spec(requests: Sequence[Plain], devices: Mapping[str, object]) -> Plain:
    return {"devices": {"requests": list(requests) or [request()], **devices}}


def _manifest(resource: Resource, name: str, namespace: str = "", **parts: object) -> Plain:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **parts}
