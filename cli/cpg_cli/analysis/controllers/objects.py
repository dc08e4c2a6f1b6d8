"""The objects that controllers make, as plain data, and what controllers can ask about the objects that exist."""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from cpg_cli.cluster.manifests import uid_of

Plain = dict[str, Any]
POD = "Pod"


class ObjectKey(NamedTuple):
    """An object by kind, namespace and name."""

    kind: str
    namespace: str
    name: str


class Observed(Protocol):
    """What a controller sees of the cluster."""

    def is_placed(self, key: ObjectKey) -> bool:
        """Return whether a pod, or every pod below an object, exists and has a node."""

    def complete(self, key: ObjectKey) -> bool:
        """Let every pod below an object succeed, if all of them have nodes; return whether they have succeeded."""

    def node_label(self, key: ObjectKey, label: str) -> str | None:
        """Return a label of the node of a pod, or None if it has no node, or the node no such label."""

    def priority(self, pod_spec: Plain) -> int:
        """Return the priority that a pod with this spec gets."""

    def find(self, kind: str, namespace: str, name: str) -> Plain | None:
        """Return an object of the files."""

    def note(self, text: str) -> None:
        """Tell the user something about what is simulated."""


def key_of(plain: Plain) -> ObjectKey:
    """Return the key of an object."""
    meta = plain["metadata"]
    return ObjectKey(plain["kind"], meta.get("namespace", ""), meta["name"])


def group_of(plain: Plain) -> str:
    """Return the API group of an object."""
    group, slash, _ = plain["apiVersion"].rpartition("/")
    return group if slash else ""


def find(plain: Any, *path: str) -> Any:  # noqa: ANN401 - JSON
    """Return what is at a path, or None."""
    for key in path:
        plain = plain.get(key) if isinstance(plain, dict) else None
    return plain


def count(plain: Any, *path: str, default: int = 1) -> int:  # noqa: ANN401 - JSON
    """Return the number at a path, or the default."""
    found = find(plain, *path)
    return default if found is None else int(found)


def items(plain: Any, *path: str) -> list[Plain]:  # noqa: ANN401 - JSON
    """Return the list at a path, or an empty one."""
    return find(plain, *path) or []


def annotations_of(plain: Plain) -> dict[str, str]:
    """Return the annotations of an object or template."""
    return find(plain, "metadata", "annotations") or {}


def labels_of(plain: Plain) -> dict[str, str]:
    """Return the labels of an object or template."""
    return find(plain, "metadata", "labels") or {}


def digest(text: str, length: int) -> str:
    """Return some characters that depend on a text, in place of those that controllers generate."""
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:length]


def controlled(
    owner: Plain,
    api_version: str,
    kind: str,
    name: str,
    *,
    spec: Plain,
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
) -> Plain:
    """Return an object that another one controls."""
    meta = owner["metadata"]
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }
    group = api_version.rpartition("/")[0]
    metadata = {
        "name": name,
        "namespace": meta["namespace"],
        "uid": uid_of(f"{group}/{kind}", meta["namespace"], name),
        "labels": dict(labels),
        "annotations": dict(annotations),
        "ownerReferences": [reference],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def pod_from(
    owner: Plain,
    template: Plain | None,
    name: str,
    *,
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    spec: Mapping[str, Any] = {},
) -> Plain:
    """Return a pod of a template, with what its controller adds to it."""
    template = template or {}
    return controlled(
        owner,
        "v1",
        POD,
        name,
        spec={**(template.get("spec") or {}), **spec},
        labels={**labels_of(template), **labels},
        annotations={**annotations_of(template), **annotations},
    )


def with_labels(template: Plain | None, labels: Mapping[str, str], annotations: Mapping[str, str] = {}) -> Plain:
    """Return a pod template with further labels and annotations."""
    template = template or {}
    meta = find(template, "metadata") or {}
    both = {
        "labels": {**labels_of(template), **labels},
        "annotations": {**annotations_of(template), **annotations},
    }
    return {**template, "metadata": {**meta, **both}}


def with_domain(spec: Plain, topology: str, domain: str) -> Plain:
    """Return the change of a pod spec that keeps the pod in a domain."""
    return {"nodeSelector": {**(spec.get("nodeSelector") or {}), topology: domain}}


def exclusive_affinity(
    spec: Plain, rules: Iterable[tuple[str, str, str]], also: Iterable[Plain] = (), **scope: Any
) -> Plain:
    """Return the change of a pod spec that gives pods of one key a domain without pods of other keys.

    Each rule has a topology, a label and the value of the key.
    """
    together, apart = [], []
    for topology, label, value in rules:
        same = [{"key": label, "operator": "In", "values": [value]}]
        others = [
            {"key": label, "operator": "Exists"},
            {"key": label, "operator": "NotIn", "values": [value]},
            *also,
        ]
        together.append({"labelSelector": {"matchExpressions": same}, "topologyKey": topology, **scope})
        apart.append({"labelSelector": {"matchExpressions": others}, "topologyKey": topology, **scope})
    affinity = spec.get("affinity") or {}
    return {
        "affinity": {
            **affinity,
            "podAffinity": _with_terms(affinity.get("podAffinity"), together),
            "podAntiAffinity": _with_terms(affinity.get("podAntiAffinity"), apart),
        }
    }


def _with_terms(given: Plain | None, terms: list[Plain]) -> Plain:
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    given = given or {}
    return {**given, field: [*(given.get(field) or []), *terms]}
