"""The pods of an installed release, and which of them leads.

The Lease of a process has the name of its service account, and names the host of its holder: the pod, or with
``hostNetwork`` the node.
"""

from collections.abc import Sequence

import msgspec
import yaml

from cpg_api.decoding import decode
from cpg_cli.cluster.api_server import ApiServer, ApiServerError
from cpg_client.leader_election import LeaseRecord
from cpg_client.resources import LEASES, PODS, Resource

NAMESPACE = "kube-cpg"
"""Where a release is looked for by a user that may not list the pods of all namespaces."""
NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
MAX_HOSTNAME = 63
NOT_FOUND, FORBIDDEN = 404, 403


class ReplicaMeta(msgspec.Struct, frozen=True):
    """Name, namespace and labels of a pod of the release."""

    name: str
    namespace: str
    labels: dict[str, str] = {}


class ReplicaContainer(msgspec.Struct, frozen=True):
    """The image of a container."""

    image: str = ""


class ReplicaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod of the release runs, and as which service account."""

    service_account_name: str = ""
    node_name: str = ""
    containers: tuple[ReplicaContainer, ...] = ()


class ReplicaCondition(msgspec.Struct, frozen=True):
    """One condition of a pod of the release."""

    type: str
    status: str


class ReplicaStatus(msgspec.Struct, frozen=True):
    """The phase and the conditions of a pod of the release."""

    phase: str = ""
    conditions: tuple[ReplicaCondition, ...] = ()


class ReplicaPod(msgspec.Struct, frozen=True):
    """A pod of the scheduler or the operator."""

    metadata: ReplicaMeta
    spec: ReplicaSpec
    status: ReplicaStatus = ReplicaStatus()

    @property
    def key(self) -> str:
        """The namespace and the name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def is_ready(self) -> bool:
        """Whether its readiness probe succeeds."""
        return any(one.type == "Ready" and one.status == "True" for one in self.status.conditions)

    def is_host(self, host: str) -> bool:
        """Return whether this is the host name of the pod, or with ``hostNetwork`` its node."""
        return host in {self.metadata.name[:MAX_HOSTNAME].rstrip("-."), self.spec.node_name}


class ReplicaLease(msgspec.Struct, frozen=True):
    """A Lease as it is read; it is never written."""

    spec: LeaseRecord = LeaseRecord()


class ReplicaList(msgspec.Struct, frozen=True):
    """The process of one release: its pods, and its Lease if there is one."""

    pods: tuple[ReplicaPod, ...]
    lease: LeaseRecord | None = None

    @property
    def namespace(self) -> str:
        """The namespace of the release."""
        return self.pods[0].metadata.namespace

    @property
    def name(self) -> str:
        """The name of the Deployment, of its Lease and of its settings."""
        return self.pods[0].spec.service_account_name

    @property
    def leader(self) -> ReplicaPod | None:
        """The pod that holds the Lease; without leader election the only one."""
        if self.lease is None:
            return self.pods[0] if len(self.pods) == 1 else None
        host = (self.lease.holder_identity or "").rsplit("-", 2)[0]
        return next((pod for pod in self.pods if host and pod.is_host(host)), None)


def find_replicas(server: ApiServer, component: str) -> list[ReplicaList]:
    """Return the processes of a component, ``scheduler`` or ``operator``, of all releases that the user may see."""
    processes: dict[tuple[str, str], list[ReplicaPod]] = {}
    for pod in _pods(server, component):
        processes.setdefault((pod.metadata.namespace, pod.spec.service_account_name), []).append(pod)
    return [ReplicaList(tuple(pods), _lease(server, *place)) for place, pods in sorted(processes.items())]


def read_settings_of(server: ApiServer, process: ReplicaList) -> dict[str, object]:
    """Return the settings of a process from its ConfigMap; empty if it has none, or the user may not read it."""
    try:
        found = decode(server.get(CONFIG_MAPS.path(process.namespace, process.name)))
    except ApiServerError as error:
        if error.status not in {NOT_FOUND, FORBIDDEN}:
            raise
        return {}
    plain = yaml.safe_load((found.get("data") or {}).get("settings.yaml") or "{}")
    return plain if isinstance(plain, dict) else {}


def _pods(server: ApiServer, component: str) -> Sequence[ReplicaPod]:
    selector = f"{NAME}=kube-cpg,{COMPONENT}={component}"
    try:
        pages = list(server.pages(PODS, labelSelector=selector))
    except ApiServerError as error:
        if error.status != FORBIDDEN:
            raise
        pages = list(server.pages(PODS, NAMESPACE, labelSelector=selector))
    pods = [decode(raw, ReplicaPod) for page in pages for raw in page.items]
    return [pod for pod in pods if pod.status.phase not in {"Succeeded", "Failed"}]


def _lease(server: ApiServer, namespace: str, name: str) -> LeaseRecord | None:
    try:
        body = server.get(LEASES.path(namespace, name))
    except ApiServerError as error:
        if error.status == NOT_FOUND:
            return None
        raise
    return decode(body, ReplicaLease).spec
