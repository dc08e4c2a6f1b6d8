"""From objects to plain data, as it is sent to an API server or printed as YAML.

What has its default is left out: the API server fills it in again. Fields that are our own addition are left out of
the native flavour, whose API server would refuse them.
"""

from typing import Any, TypeAlias

import msgspec

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import API_VERSION, NATIVE_GROUP, VERSION
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload

SchedulingObject: TypeAlias = Workload | PodGroup | CompositePodGroup

EXTENSIONS = frozenset({"preferredTopology", "replicas", "pods", "groups", "domain"})
"""Fields, in spec and status, that scheduling.k8s.io has not; nor has its Workload a status."""


def to_manifest(found: SchedulingObject, *, native: bool = False) -> dict[str, Any]:
    """Return the object as plain data, with ``apiVersion`` and ``kind``, for either flavour."""
    plain: dict[str, Any] = _with_lists(msgspec.to_builtins(found))
    if native:
        plain |= {part: _without_extensions(plain[part]) for part in ("spec", "status") if part in plain}
        if isinstance(found, Workload):
            plain.pop("status", None)
    api_version = f"{NATIVE_GROUP}/{VERSION}" if native else API_VERSION
    return {"apiVersion": api_version, "kind": found.kind, **plain}


def _with_lists(plain: Any) -> Any:  # noqa: ANN401 - plain data of any form
    """Make lists of tuples: YAML would write the latter as something of Python's own."""
    if isinstance(plain, dict):
        return {key: _with_lists(value) for key, value in plain.items()}
    if isinstance(plain, tuple):
        return [_with_lists(value) for value in plain]
    return plain


def _without_extensions(plain: Any) -> Any:  # noqa: ANN401 - plain data of any form
    if isinstance(plain, dict):
        return {key: _without_extensions(value) for key, value in plain.items() if key not in EXTENSIONS}
    if isinstance(plain, list):
        return [_without_extensions(value) for value in plain]
    return plain
