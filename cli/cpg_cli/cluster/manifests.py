"""Objects from manifests, as the API server would have them: decoded, checked, with their defaults and a UID."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.parsing import Rejected, convert_object
from cpg_api.problems import Problem
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import GROUP, NATIVE_GROUP, VERSION
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_cli.cluster.documents import Document, Plain
from cpg_cli.cluster.field_checks import spec_problems, template_problems
from cpg_cli.cluster.kinds import RESOURCES
from cpg_cli.cluster.objects import ClusterObjects
from cpg_cli.failures import CommandError, usage_error
from cpg_client.flavours import CRD, KINDS, NATIVE

FLAVOURS = {GROUP: CRD, NATIVE_GROUP: NATIVE}
GROUP_KINDS: dict[str, type[Any]] = {one.kind: one for one in (Workload, PodGroup, CompositePodGroup)}
PLAIN_KINDS = {(one.group, one.kind): (kind, one) for kind, one in RESOURCES.items()}
CLUSTER_SCOPED = frozenset({"ClusterTrainingRuntime"})
"""Kinds without a namespace, beside those that decisions depend on."""
PODS_OF_A_NODE = "110"
"""The kubelet's default, for nodes that are written by hand."""
PAST = frozenset({"deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "generation"})
"""Fields of the metadata of an object that was read from a cluster, and is submitted anew."""
MAX_PROBLEMS = 10


class Manifest(Struct, frozen=True):
    """An object of a kind that decisions do not depend on by themselves, such as a Job: with namespace and UID."""

    document: Document
    plain: Plain


@dataclass
class Manifests:
    """The objects of some files."""

    objects: ClusterObjects = field(default_factory=ClusterObjects)
    others: list[Manifest] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    """Where each object stands, by UID."""


def uid_of(kind: str, namespace: str, name: str) -> str:
    """Return the UID of an object that does not exist, always the same."""
    return str(uuid5(NAMESPACE_URL, f"{kind}/{namespace}/{name}"))


def read_manifests(
    documents: Iterable[Document], *, namespace: str, created: str, is_existing: bool = False
) -> Manifests:
    """Return the objects of documents; raise with all problems, each with its place.

    Objects that exist keep what a file says of their past.
    """
    found, problems = Manifests(), list[str]()
    found.objects.groups = {flavour: {kind: [] for kind in kinds} for flavour, kinds in KINDS.items()}
    for document in documents:
        problems += _add(found, document, namespace, None if is_existing else created)
    if problems:
        raise _refused(problems)
    return found


def _refused(problems: Sequence[str]) -> CommandError:
    more = len(problems) - MAX_PROBLEMS
    lines = [*problems[:MAX_PROBLEMS], *([f"and {more} more"] if more > 0 else [])]
    return usage_error("\n".join(lines), "correct the files; the API server would refuse them too")


def _add(found: Manifests, document: Document, namespace: str, created: str | None) -> Iterator[str]:
    """Add the object of a document, and yield what is wrong with it."""
    flavour = FLAVOURS.get(document.group) if document.kind in GROUP_KINDS else None
    if flavour is not None and document.plain["apiVersion"] != f"{document.group}/{VERSION}":
        version = f"{document.group}/{VERSION}"
        yield f"{document.place}: {document.name} has apiVersion {document.plain['apiVersion']}, not {version}"
        return
    known = PLAIN_KINDS.get((document.group, document.kind))
    is_namespaced = known[1].namespaced if known is not None else document.kind not in CLUSTER_SCOPED
    plain = _with_metadata(document, namespace if is_namespaced else "", created)
    meta = plain["metadata"]
    if meta["uid"] in found.places:
        yield f"{document.place}: {document.name} is there already, in {found.places[meta['uid']]}"
        return
    found.places[meta["uid"]] = document.place
    if flavour is None and known is None:
        found.others.append(Manifest(document, plain))
        return
    kind = GROUP_KINDS[document.kind] if flavour is not None else known[0] if known is not None else Pod
    converted: Any = convert_object(plain, kind)
    problems = list(_object_problems(converted, plain, is_group=flavour is not None))
    yield from (f"{document.place}: {document.name}: {problem}" for problem in problems)
    if not problems and flavour is not None:
        found.objects.groups[flavour][kind].append(converted)
    elif not problems:
        found.objects.by_kind[kind].append(_with_defaults(converted))


def _object_problems(converted: Any, plain: Plain, *, is_group: bool) -> Iterator[Problem]:  # noqa: ANN401
    if isinstance(converted, Rejected):
        yield from converted.problems
    elif is_group:
        yield from spec_problems(plain.get("spec") or {}, type(converted))
        if isinstance(converted, Workload):
            yield from template_problems(converted)


def _with_metadata(document: Document, namespace: str, created: str | None) -> Plain:
    """Return an object with what the API server gives it; without a time of creation it exists already."""
    meta: Mapping[str, Any] = document.plain["metadata"]
    name, place = meta["name"], (meta.get("namespace") or namespace) if namespace else ""
    scope = {"namespace": place} if place else {}
    own = {"uid": uid_of(f"{document.group}/{document.kind}", place, name)}
    if created is None:
        return {**document.plain, "metadata": {**own, **meta, **scope}}
    kept = {key: value for key, value in meta.items() if key not in PAST}
    rest = {key: value for key, value in document.plain.items() if key != "status" or document.kind == Node.__name__}
    return {**rest, "metadata": {**kept, **scope, **own, "creationTimestamp": created}}


def _with_defaults(found: Any) -> Any:  # noqa: ANN401 - any kind
    if not isinstance(found, Node):
        return found
    allocatable = {"pods": PODS_OF_A_NODE, **(found.status.allocatable or found.status.capacity or {})}
    return replace(found, status=replace(found.status, allocatable=allocatable))
