"""The objects of scenarios as an API server takes them, with the fields that it demands and the engine does not.

An API server overwrites UIDs and creation timestamps. The timestamps are kept: they give the order of creation.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

import msgspec

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.manifests import to_manifest
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.names import POD_GROUP_LABEL

Plain = dict[str, Any]
WITHOUT_AGE = ("Node", "PodDisruptionBudget")
"""Kinds whose age means nothing."""


def node_manifest(node: Node) -> Plain:
    """Return a node; its capacity is what it can allocate."""
    plain = _plain(node, "Node")
    plain["status"]["capacity"] = plain["status"]["allocatable"]
    return plain


def group_manifest(group: Group, *, native: bool) -> Plain:
    """Return a group without its status."""
    plain = to_manifest(group, native=native)
    plain.pop("status", None)
    return plain


def batches_by_age(manifests: Iterable[Plain]) -> list[list[Plain]]:
    """Return groups and then pods in batches of one age, the oldest first; nothing if they are in that order anyway.

    A kind that is in order is one batch.
    """
    members = [plain for plain in manifests if plain["kind"] not in WITHOUT_AGE]
    batches, has_ages = list[list[Plain]](), False
    for is_pod in (False, True):
        found = [plain for plain in members if (plain["kind"] == "Pod") is is_pod]
        by_age = sorted(found, key=_created)
        if found == by_age:
            batches.append(found)
        else:
            has_ages = True
            batches.extend(list(same_age) for _, same_age in groupby(by_age, key=_created))
    return batches if has_ages else []


def _created(plain: Plain) -> str:
    found: str = plain["metadata"].get("creationTimestamp", "")
    return found


def pod_manifest(pod: Pod, *, native: bool) -> Plain:
    """Return a pod without its status; in the native flavour its group is named by the native field."""
    plain = _plain(pod, "Pod")
    plain.pop("status", None)
    spec = plain["spec"]
    spec.setdefault("terminationGracePeriodSeconds", 0)  # no kubelet ends pods here
    for constraint in spec.get("topologySpreadConstraints", ()):
        constraint.setdefault("maxSkew", 1)
    for container in spec.setdefault("containers", [{}]):
        container.setdefault("name", "main")
        container.setdefault("image", "busybox")
        _limit_extended_resources(container.get("resources", {}))
    if native and (group := membership(pod).group):
        del plain["metadata"]["labels"][POD_GROUP_LABEL]
        spec["schedulingGroup"] = {"podGroupName": group}
    return plain


def _limit_extended_resources(resources: Plain) -> None:
    """Set the limit of each extended resource to its request: nodes cannot overcommit them."""
    limits = {name: amount for name, amount in resources.get("requests", {}).items() if "/" in name}
    if limits:
        resources["limits"] = {**limits, **resources.get("limits", {})}


def _plain(found: Node | Pod, kind: str) -> Plain:
    plain: Plain = msgspec.to_builtins(found)
    plain.pop("type", None)
    return {"apiVersion": "v1", "kind": kind, **plain}
