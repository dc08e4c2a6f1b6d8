"""What ``doctor`` asks the API server. A missing right leaves a gap, which is named."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from cpg_api.decoding import decode
from cpg_api.meta import ObjectMeta
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.leader import REVIEW_KIND, REVIEWS, LeaderPages
from cpg_cli.cluster.listing import list_objects, served_kinds
from cpg_cli.cluster.objects import ClusterObjects
from cpg_cli.cluster.release import NAME, ReplicaList, find_replicas
from cpg_cli.failures import CommandError, ExitCode
from cpg_client.flavours import KINDS
from cpg_client.resources import CPG_GROUP, Resource, group_path

T = TypeVar("T")
Plain = dict[str, Any]
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
WEBHOOKS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
SCHEMAS = f"/openapi/v3/apis/{CPG_GROUP}/v1alpha3"
OUR_PLURALS = ("podgroups", "compositepodgroups", "workloads")
READY_PAGE = "/readyz"


class UserRight(msgspec.Struct, frozen=True):
    """A right that the command line uses, and what is missing without it."""

    verb: str
    group: str
    resource: str
    without: str
    subresource: str = ""

    @property
    def name(self) -> str:
        """The verb and the resource."""
        return f"{self.verb} {self.resource}{'/' if self.subresource else ''}{self.subresource}"


RIGHTS = (
    *(UserRight("list", CPG_GROUP, plural, "no tree is shown") for plural in OUR_PLURALS),
    UserRight("watch", CPG_GROUP, "podgroups", "`wait` and `tree -w` see no changes"),
    UserRight("list", "", "pods", "no pods are shown"),
    UserRight("list", "", "nodes", "`explain`, `simulate` and `top` cannot decide again"),
    UserRight("list", "", "namespaces", "affinity terms that select namespaces may be decided wrongly"),
    UserRight("list", "scheduling.k8s.io", "priorityclasses", "priorities by name are not known"),
    UserRight("list", "policy", "poddisruptionbudgets", "preemption may be explained wrongly"),
    UserRight("list", "", "persistentvolumes", "volumes may be decided wrongly"),
    UserRight("create", "", "pods", "`explain` and `queue` do not ask the scheduler itself", "portforward"),
)


class OtherKind(msgspec.Struct, frozen=True, rename="camel"):
    """A resource of another API group."""

    name: str
    kind: str = ""
    short_names: tuple[str, ...] = ()
    group: str = ""


class _KindList(msgspec.Struct, frozen=True):
    resources: tuple[OtherKind, ...] = ()


class GroupMetadata(msgspec.Struct, frozen=True):
    """The metadata of a group, with its finalizers."""

    metadata: ObjectMeta


@dataclass
class ClusterFacts:
    """Everything that ``doctor`` judges."""

    now: float = field(default_factory=time.time)
    server_version: str = ""
    custom_resources: dict[str, Plain] = field(default_factory=dict)
    schemas: Plain = field(default_factory=dict)
    served: dict[str, set[str]] = field(default_factory=dict)
    """The plurals of each flavour."""
    other_kinds: list[OtherKind] = field(default_factory=list)
    processes: dict[str, list[ReplicaList]] = field(default_factory=dict)
    not_ready: str | None = None
    """What the scheduler that leads says is not ready; None if it was not asked."""
    webhooks: list[Plain] = field(default_factory=list)
    missing_rights: list[UserRight] = field(default_factory=list)
    objects: ClusterObjects = field(default_factory=ClusterObjects)
    groups: list[ObjectMeta] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    """What the user may not read, with the reason."""
    errors: dict[str, str] = field(default_factory=dict)
    """What could not be read for another reason."""


class FactFinder:
    """Collects the facts, step by step."""

    def __init__(self, server: ApiServer, namespace: str | None) -> None:
        """Read one namespace, or all."""
        self._server = server
        self._namespace = namespace
        self.facts = ClusterFacts()

    def steps(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield each step with its name."""
        yield "version", self._version
        yield "kinds", self._kinds
        yield "CustomResourceDefinitions", self._custom_resources
        yield "schemas", self._schemas
        yield "API groups", self._other_kinds
        yield "scheduler", lambda: self._processes("scheduler")
        yield "operator", lambda: self._processes("operator")
        yield "readiness of the scheduler", self._readiness
        yield "webhooks", self._webhooks
        yield "rights", self._rights
        yield "objects", self._objects
        yield "finalizers", self._groups

    def collect(self, report: Callable[[str, int, int], None]) -> ClusterFacts:
        """Take all steps; a step that fails is noted."""
        steps = list(self.steps())
        for number, (name, step) in enumerate(steps, start=1):
            try:
                step()
            except CommandError as error:
                if name == "version":
                    raise
                gaps = self.facts.unread if error.code is ExitCode.FORBIDDEN else self.facts.errors
                gaps[name] = str(error)
            report("checks", number, len(steps))
        return self.facts

    def _version(self) -> None:
        self.facts.server_version = str(decode(self._server.get("/version")).get("gitVersion") or "")

    def _kinds(self) -> None:
        self.facts.served = {
            flavour: {one.plural for one in kinds.values()} for flavour, kinds in served_kinds(self._server).items()
        }

    def _custom_resources(self) -> None:
        items = [decode(raw) for page in self._server.pages(CRDS) for raw in page.items]
        self.facts.custom_resources = {
            one["spec"]["names"]["plural"]: one for one in items if one["spec"]["group"] == CPG_GROUP
        }

    def _schemas(self) -> None:
        if "crd" in self.facts.served:
            self.facts.schemas = decode(self._server.get(SCHEMAS))["components"]["schemas"]

    def _other_kinds(self) -> None:
        ours = {one.group for kinds in KINDS.values() for one in kinds.values()}
        for group in decode(self._server.get("/apis"))["groups"]:
            if group["name"] not in ours:
                path = group_path(group["name"], group["preferredVersion"]["version"])
                resources = decode(self._server.get(path), _KindList).resources
                self.facts.other_kinds += [msgspec.structs.replace(one, group=group["name"]) for one in resources]

    def _processes(self, component: str) -> None:
        self.facts.processes[component] = find_replicas(self._server, component)

    def _readiness(self) -> None:
        self.facts.not_ready = LeaderPages(self._server).unready_reason()

    def _webhooks(self) -> None:
        pages = self._server.pages(WEBHOOKS, labelSelector=f"{NAME}=kube-cpg")
        self.facts.webhooks = [decode(raw) for page in pages for raw in page.items]

    def _rights(self) -> None:
        for right in RIGHTS:
            attributes = {name: getattr(right, name) for name in ("verb", "group", "resource", "subresource")}
            where = {"namespace": self._namespace} if self._namespace else {}
            question = {**REVIEW_KIND, "spec": {"resourceAttributes": {**attributes, **where}}}
            if not decode(self._server.post(REVIEWS, question))["status"].get("allowed"):
                self.facts.missing_rights.append(right)

    def _objects(self) -> None:
        self.facts.objects = list_objects(self._server, namespace=self._namespace)
        self.facts.unread |= self.facts.objects.unread

    def _groups(self) -> None:
        for kind in KINDS["crd"].values():
            if kind.plural in self.facts.served.get("crd", ()):
                pages = self._server.pages(kind, self._namespace)
                self.facts.groups += [decode(raw, GroupMetadata).metadata for page in pages for raw in page.items]
