"""The documents by which clients discover the version, the groups and the resources of a server."""

from collections.abc import Iterable
from typing import Any

import msgspec

from cpg_client.resources import group_path
from cpg_simulation.apiserver.kinds import Kind, subresources_of

VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")


def documents(kinds: Iterable[Kind], version: tuple[int, int]) -> dict[str, bytes]:
    """Return the documents by their paths."""
    major, minor = version
    found: dict[str, Any] = {
        "/version": {"major": str(major), "minor": str(minor), "gitVersion": f"v{major}.{minor}.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
    }
    groups: dict[str, dict[str, list[Kind]]] = {}
    for kind in kinds:
        resource = kind.resource
        groups.setdefault(resource.group, {}).setdefault(resource.version, []).append(kind)
    for group, versions in groups.items():
        for name, served in versions.items():
            found[group_path(group, name)] = _resources(group, name, served)
    found["/apis"] = {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(group, [*versions]) for group, versions in groups.items() if group],
    }
    health = dict.fromkeys(("/readyz", "/livez", "/healthz"), b"ok")
    return health | {path: msgspec.json.encode(document) for path, document in found.items()}


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    found = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": found, "preferredVersion": found[0]}


def _resources(group: str, version: str, kinds: Iterable[Kind]) -> dict[str, Any]:
    found = []
    for kind in kinds:
        resource = kind.resource
        one = {"name": resource.plural, "namespaced": resource.namespaced, "kind": resource.kind}
        found.append({**one, "singularName": resource.kind.lower(), "verbs": VERBS})
        below = subresources_of(kind)
        found += [{**one, "name": f"{resource.plural}/{name}", "verbs": VERBS[2:]} for name in below]
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": found}
