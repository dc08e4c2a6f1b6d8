"""A real API server with both flavours and its controllers, pods that run, and an operator to kill and start again."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_client import resources
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.errors import ApiError
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_client.resources import Resource
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

CRDS = str(Path(__file__).parents[4] / "manifests" / "crds")
PATIENCE = 30.0
POLL = 0.05
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
        """Work in this namespace, with our kinds of groups."""
        self.connection = connection
        self.namespace = namespace
        self.flavour = CRD

    def resource(self, kind: str) -> Resource:
        """Return where a kind is served."""
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
        """Create a group that is content with anything, below a parent if one is named."""
        spec = {"schedulingPolicy": {"basic": {}}, "workloadRef": {"workloadName": "w", "templateName": "t"}}
        await self.create(kind, name, spec | ({PARENT: parent} if parent else {}), **metadata)

    async def pod(self, name: str, group: str | None, *, phase: str = "") -> None:
        """Create a pod on a node, where it will run; or off all nodes, in a phase of which nobody says otherwise."""
        labels = {POD_GROUP_LABEL: group} if group else {}
        where = {"schedulerName": SCHEDULER_NAME} if phase else {"nodeName": NODE}
        await self.create("Pod", name, {**pod_spec(), **where}, labels=labels)
        if phase:
            await self.merge("Pod", name, {"status": {"phase": phase}}, "status")

    async def until(self, what: str, condition: Callable[[], Awaitable[object]]) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + PATIENCE
        while not await condition():
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
            await asyncio.sleep(POLL)

    def _path(self, kind: str, name: str, subresource: str | None = None) -> str:
        resource = self.resource(kind)
        return resource.path(self.namespace if resource.namespaced else None, name, subresource)


class Operator:
    """Our operator as a process that can be killed and started again."""

    def __init__(self, cluster: Cluster, log: Path) -> None:
        """Start nothing yet."""
        self._cluster = cluster
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def log(self) -> str:
        """All that it has said."""
        return self._log.read_text()

    def ensure(self) -> None:
        """Start it unless it runs; return when it is ready."""
        if self._process is not None and self._process.poll() is None:
            return
        command = self._command("--no-leader-elect", "--listen", "")
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(command, stderr=output, stdout=output)  # noqa: S603
        self._starts += 1
        self._cluster.wait(self._is_ready, timeout=PATIENCE, what="the operator")

    def kill(self) -> None:
        """End it without a last word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def release(self) -> None:
        """Run its way out to the end."""
        subprocess.run(self._command("release-finalizers"), check=True, timeout=PATIENCE, capture_output=True)  # noqa: S603

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "cpg_operator", *arguments, "--kubeconfig", str(self._cluster.kubeconfig)]

    def _is_ready(self) -> bool:
        return self.log.count('"event": "ready"') >= self._starts


def pod_spec() -> Plain:
    """Return what a pod asks for: nothing much, and a quick end."""
    return {"containers": [{"name": "main", "image": "busybox"}], "terminationGracePeriodSeconds": 0}


def _decoded(body: bytes) -> Plain:
    found: Plain = msgspec.json.decode(body)
    return found


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Run a cluster that serves both flavours, with a node on which pods run."""
    nodes = (NodePool.parse("1 nodes, cpu=64, pods=500"),)
    with Cluster(ClusterSpec(gates="native", components=("controller-manager", "kwok"), nodes=nodes)) as running:
        running.kubectl("apply", "-f", CRDS)
        running.kubectl("wait", "--for=condition=established", "--timeout=30s", "-f", CRDS)
        yield running


@pytest.fixture(scope="package")
def process(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """Return our operator, not yet started."""
    operator = Operator(cluster, tmp_path_factory.mktemp("operator") / "log")
    yield operator
    operator.kill()
    assert "look failed" not in operator.log


@pytest.fixture
def operator(process: Operator) -> Operator:
    """Return our operator, running."""
    process.ensure()
    return process


@pytest.fixture
async def api(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """Return an empty namespace of its own."""
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
