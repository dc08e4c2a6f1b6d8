"""The pods and pod templates inside an object of any kind."""

from collections.abc import Iterator
from copy import deepcopy

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_cli.conversion.documents import Plain

MAX_LABEL = 63


def pods_in(value: object) -> Iterator[Plain]:
    """Yield every object inside a value that is a pod, or a template of pods: its spec has containers."""
    if isinstance(value, dict):
        spec = value.get("spec")
        if isinstance(spec, dict) and isinstance(spec.get("containers"), list):
            yield value
        for one in value.values():
            yield from pods_in(one)
    elif isinstance(value, list):
        for one in value:
            yield from pods_in(one)


def take(pod: Plain, field: str, keys: tuple[str, ...]) -> str | None:
    """Remove labels or annotations of these keys, and return the value of the first that is there."""
    found = (pod.get("metadata") or {}).get(field) or {}
    values = [found.pop(key) for key in keys if key in found]
    if values and not found:
        del pod["metadata"][field]
    return str(values[0]) if values else None


def join_group(pod: Plain, group: str) -> None:
    """Name the group of a pod: by a label, or by an annotation where the name is too long for one."""
    put(pod, "labels" if len(group) <= MAX_LABEL else "annotations", POD_GROUP_LABEL, group)


def put(pod: Plain, field: str, key: str, value: str) -> None:
    """Set a label or annotation."""
    metadata = pod.get("metadata") or {}
    pod["metadata"] = {**metadata, field: {**(metadata.get(field) or {}), key: value}}


def copy_of(value: Plain) -> Plain:
    """Return a copy that may be changed."""
    return deepcopy(value)
