"""Turn objects into plain data, as an API server or YAML takes it.

Fields with their default value are left out: the API server fills them in. Extensions of kube-cpg are left out of the
native flavour, because its API server refuses them.
"""

from typing import Any, TypeAlias

import msgspec

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import API_VERSION, NATIVE_GROUP, VERSION
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload

SchedulingObject: TypeAlias = Workload | PodGroup | CompositePodGroup

EXTENSIONS = frozenset({"preferredTopology", "replicas", "pods", "groups", "domain", "attempt"})
"""Fields of spec and status that scheduling.k8s.io does not have. Its Workload has no status either."""


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
    """Return the data with lists in place of tuples, which YAML would write with a Python tag."""
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
