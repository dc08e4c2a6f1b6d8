"""A real API server with both flavours and its controllers, running pods, and an operator to kill and restart."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.e2e.polling import growing_pauses

from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_client import resources
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.errors import ApiError
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_client.resources import Resource
from cpg_lab.charts import ChartRelease
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import PodProcess, run_job
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

PATIENCE = 30.0
NODE = "node-1"
CPG, PG = "CompositePodGroup", "PodGroup"
PARENT = "parentCompositePodGroupName"
OTHERS = {
    "Pod": resources.PODS,
    "Job": Resource("batch", "v1", "jobs", "Job"),
    "Event": resources.EVENTS,
    "Namespace": resources.NAMESPACES,
}
Plain = dict[str, Any]


class Api:
    """The objects of one namespace."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        """Use this namespace, with our kinds of groups."""
        self.connection = connection
        self.namespace = namespace
        self.flavour = CRD

    def resource(self, kind: str) -> Resource:
        """Return the resource of a kind."""
        kinds = {one.__name__: resource for one, resource in KINDS[self.flavour].items()}
        return kinds.get(kind) or OTHERS[kind]

    async def create(self, kind: str, name: str, spec: Plain | None = None, **metadata: Any) -> Plain:
        """Create an object and return it."""
        resource = self.resource(kind)
        body = {"apiVersion": resource.api_version, "kind": kind, "metadata": {"name": name, **metadata}}
        path = resource.path(self.namespace if resource.namespaced else None)
        return _decoded(await self.connection.post(path, body if spec is None else body | {"spec": spec}))

    async def list(self, kind: str) -> list[Plain]:
        """Return all objects of a kind."""
        found: list[Plain] = _decoded(await self.connection.get(self.resource(kind).path(self.namespace)))["items"]
        return found

    async def names(self, *kinds: str) -> set[str]:
        """Return the names of all objects of some kinds."""
        return {one["metadata"]["name"] for kind in kinds for one in await self.list(kind)}

    async def get(self, kind: str, name: str) -> Plain | None:
        """Return an object, or None."""
        try:
            return _decoded(await self.connection.get(self._path(kind, name)))
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def merge(self, kind: str, name: str, body: Plain, subresource: str | None = None) -> None:
        """Change an object by a merge patch."""
        await self.connection.patch(self._path(kind, name, subresource), body, MERGE_PATCH)

    async def delete(self, kind: str, *names: str, policy: str = "Background") -> None:
        """Delete objects, their dependents by this policy."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}
        for name in names:
            await self.connection.delete(self._path(kind, name), options)

    async def group(self, kind: str, name: str, parent: str | None = None, **metadata: Any) -> None:
        """Create a group with a minimum of one, below a parent if one is named."""
        spec = {"schedulingPolicy": {"basic": {}}, "workloadRef": {"workloadName": "w", "templateName": "t"}}
        await self.create(kind, name, spec | ({PARENT: parent} if parent else {}), **metadata)

    async def pod(self, name: str, group: str | None, *, phase: str = "") -> None:
        """Create a pod on a node, where it will run; or without a node, in a phase that no controller changes."""
        labels = {POD_GROUP_LABEL: group} if group else {}
        where = {"schedulerName": SCHEDULER_NAME} if phase else {"nodeName": NODE}
        await self.create("Pod", name, {**pod_spec(), **where}, labels=labels)
        if phase:
            await self.merge("Pod", name, {"status": {"phase": phase}}, "status")

    async def until(self, what: str, condition: Callable[[], Awaitable[object]]) -> None:
        """Wait until a condition holds."""
        deadline, pauses = time.monotonic() + PATIENCE, growing_pauses()
        while not await condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
            await asyncio.sleep(next(pauses))

    def _path(self, kind: str, name: str, subresource: str | None = None) -> str:
        resource = self.resource(kind)
        return resource.path(self.namespace if resource.namespaced else None, name, subresource)


class OperatorProcess:
    """The operator as the chart runs it; it can be killed and started again."""

    def __init__(self, cluster: Cluster, release: ChartRelease, folder: Path) -> None:
        """Start nothing yet."""
        self._access = cluster.access
        self._release = release
        self._folder = folder
        self._pods: list[PodProcess] = []

    @property
    def log(self) -> str:
        """Its log."""
        return "".join(pod.process.output() for pod in self._pods)

    def ensure(self) -> None:
        """Start it unless it runs; return when it is ready."""
        if not self._pods or not self._pods[-1].process.is_running:
            (deployment,) = self._release.deployments
            self._pods.append(PodProcess(self._access, deployment, self._folder))
            self._pods[-1].await_ready(PATIENCE)

    def kill(self) -> None:
        """Kill it."""
        for pod in self._pods[-1:]:
            pod.process.kill()

    def release(self) -> None:
        """Run the command that removes our finalizers."""
        (job,) = self._release.of_kind("Job")
        run_job(self._access, job, folder=self._folder, timeout=PATIENCE)


def pod_spec() -> Plain:
    """Return the spec of a small pod that ends quickly."""
    return {"containers": [{"name": "main", "image": "busybox"}], "terminationGracePeriodSeconds": 0}


def _decoded(body: bytes) -> Plain:
    found: Plain = msgspec.json.decode(body)
    return found


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Run a cluster that serves both flavours, with a node on which pods run."""
    nodes = (NodePool.parse("1 nodes, cpu=64, pods=500"),)
    with Cluster(ClusterSpec(gates="native", components=("controller-manager", "kwok"), nodes=nodes)) as running:
        yield running


@pytest.fixture(scope="package")
def process(
    cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Return the operator, not started; without a lease, which a killed operator would keep for a while."""
    alone = {"settings": {"leaderElect": False}}
    release = install(cluster, {"scheduler": {"enabled": False}, "operator": alone})
    operator = OperatorProcess(cluster, release, tmp_path_factory.mktemp("operator"))
    yield operator
    operator.kill()
    assert "reconcile failed" not in operator.log
    assert "forbidden: User" not in operator.log


@pytest.fixture
def operator(process: OperatorProcess) -> OperatorProcess:
    """Return the running operator."""
    process.ensure()
    return process


@pytest.fixture
async def api(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """Return an empty namespace."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())[-50:].strip("-")
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        found = Api(connection, name)
        await found.create("Namespace", name)
        yield found
        if await found.get("Namespace", name) is not None:
            await found.delete("Namespace", name)


@pytest.fixture
def native(api: Api) -> Api:
    """Return the namespace with the kinds of the built-in API."""
    api.flavour = NATIVE
    return api
