"""A real API server, our operator as a process, and a namespace of its own for every test."""

import asyncio
import datetime as dt
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from tests.e2e.polling import growing_pauses

from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_client.connection import APPLY_YAML, MERGE_PATCH, Connection
from cpg_client.errors import ApiError
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_client.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, STATUS, Resource
from cpg_lab.certificates import issue
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import PodProcess
from cpg_lab.ports import LOOPBACK, free_port
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

PATIENCE = 20.0
PLACE = ("kube-cpg-operator", "--namespace", "kube-cpg")
Plain = dict[str, Any]
RESOURCES = {flavour: {kind.__name__: resource for kind, resource in kinds.items()} for flavour, kinds in KINDS.items()}


class OperatorProcess:
    """The operator as the chart runs it; it can be killed and started again."""

    def __init__(self, start: Callable[[], PodProcess]) -> None:
        """Run nothing yet."""
        self._start = start
        self._pod: PodProcess | None = None

    def start(self) -> None:
        """Run it."""
        self._pod = self._start()

    def kill(self) -> None:
        """Kill it, once it is ready."""
        pod = self._ready()
        pod.process.kill()
        _check(pod)

    def end(self) -> None:
        """Stop it, once it is ready; it must not have ended before."""
        pod = self._ready()
        pod.stop()
        assert pod.process.exit_code == 0, pod.process.tail()
        _check(pod)

    def _ready(self) -> PodProcess:
        assert self._pod is not None
        self._pod.await_ready(PATIENCE)
        return self._pod


def _check(pod: PodProcess) -> None:
    """Check that no reconcile has failed, and that no request was forbidden."""
    assert "reconcile failed" not in pod.process.output()
    assert "forbidden: User" not in pod.process.output()


class Testbed:
    """A namespace, and short methods for what tests do in it."""

    def __init__(self, connection: Connection, namespace: str, flavour: str = CRD) -> None:
        """Use an existing namespace."""
        self.connection = connection
        self.namespace = namespace
        self.flavour = flavour

    def resource(self, kind: str) -> Resource:
        """Return the resource of a kind."""
        return PODS if kind == "Pod" else RESOURCES[self.flavour][kind]

    async def create(self, kind: str, name: str, spec: Plain, **metadata: Any) -> Plain:  # as JSON is
        """Create an object."""
        resource = self.resource(kind)
        body = {
            "apiVersion": resource.api_version,
            "kind": kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        return _decoded(await self.connection.post(resource.path(self.namespace), body))

    async def composite(self, name: str, gang: int = 1, **spec: Any) -> None:  # as JSON is
        """Create a CompositePodGroup, by default from the template of its own name."""
        await self.create("CompositePodGroup", name, _spec(name, {"minGroupCount": gang}, spec), **_annotated(spec))

    async def group(self, name: str, gang: int = 1, **spec: Any) -> None:  # as JSON is
        """Create a PodGroup, by default from the template of its own name."""
        await self.create("PodGroup", name, _spec(name, {"minCount": gang}, spec), **_annotated(spec))

    async def pod(self, name: str, group: str, node: str = "", **spec: Any) -> None:  # as JSON is
        """Create a pod for our scheduler, which does not run here; it is bound already if a node is given."""
        containers = [{"name": "main", "image": "none"}]
        native = {"schedulingGroup": {"podGroupName": group}} if self.flavour == NATIVE else {}
        labels = {} if native else {POD_GROUP_LABEL: group}
        body = {"schedulerName": SCHEDULER_NAME, "containers": containers, **({"nodeName": node} if node else {})}
        await self.create("Pod", name, {**body, **native, **spec}, labels=labels)

    async def running(self, *names: str, phase: str = "Running") -> None:
        """Set the phase of pods."""
        for name in names:
            await self.patch("Pod", name, {"status": {"phase": phase}}, STATUS)

    async def patch(self, kind: str, name: str, body: Plain, part: str | None = None) -> None:
        """Change an object by a merge patch."""
        await self.connection.patch(self.resource(kind).path(self.namespace, name, part), body, MERGE_PATCH)

    async def apply_status(self, kind: str, name: str, status: Plain, manager: str) -> None:
        """Apply a status by force, as another manager."""
        resource = self.resource(kind)
        body = {"apiVersion": resource.api_version, "kind": kind, "status": status}
        path = resource.path(self.namespace, name, STATUS)
        await self.connection.patch(path, body, APPLY_YAML, params={"fieldManager": manager, "force": "true"})

    async def get(self, kind: str, name: str) -> Plain:
        """Read an object."""
        return _decoded(await self.connection.get(self.resource(kind).path(self.namespace, name)))

    async def delete(self, kind: str, name: str) -> None:
        """Delete an object at once, without its finalizers."""
        path = self.resource(kind).path(self.namespace, name)
        if kind != "Pod":
            await self.connection.patch(path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
        try:
            await self.connection.delete(path, {"gracePeriodSeconds": 0} if kind == "Pod" else None)
            await self.connection.patch(path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def condition(self, kind: str, name: str, condition: str) -> Plain:
        """Return a condition, or an empty one."""
        found = (await self.get(kind, name)).get("status", {}).get("conditions", [])
        return next((one for one in found if one["type"] == condition), {})

    async def scheduled(self, kind: str, name: str) -> Plain:
        """Return the condition that says whether a group was placed."""
        return await self.condition(kind, name, f"{kind}InitiallyScheduled")

    async def events(self, reason: str) -> list[str]:
        """Return the objects that have an event of a reason."""
        answer = await self.connection.get(f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events")
        return sorted(one["regarding"]["name"] for one in _decoded(answer)["items"] if one["reason"] == reason)

    async def until(self, wanted: object, ask: Callable[[], Awaitable[object]], patience: float = PATIENCE) -> float:
        """Return after how many seconds the answer was the wanted one; fail with the last answer otherwise."""
        began, pauses = time.monotonic(), growing_pauses()
        while (found := await ask()) != wanted:
            assert time.monotonic() - began < patience, f"wanted {wanted!r}, still {found!r}"
            await asyncio.sleep(next(pauses))
        return time.monotonic() - began


def _spec(name: str, gang: Plain, given: Plain) -> Plain:
    """Return a group's spec: its template has its own name by default."""
    spec = {key: value for key, value in given.items() if key not in {"annotations", "parent", "workload", "template"}}
    reference = {"workloadName": given.get("workload", "w"), "templateName": given.get("template", name)}
    parent = {"parentCompositePodGroupName": given["parent"]} if "parent" in given else {}
    return {"schedulingPolicy": {"gang": gang}, "workloadRef": reference, **parent, **spec}


def _annotated(given: Plain) -> Plain:
    return {"annotations": given["annotations"]} if "annotations" in given else {}


def _decoded(data: bytes) -> Plain:
    found: Plain = msgspec.json.decode(data)
    return found


async def _prepare(connection: Connection) -> None:
    for name, rack in (("n1", "r1"), ("n2", "r1"), ("n3", "r2")):
        await connection.post(NODES.path(), {"metadata": {"name": name, "labels": {"rack": rack}}})
    for name, value in (("high", 1000), ("low", 10)):
        await connection.post(PRIORITY_CLASSES.path(), {"metadata": {"name": name}, "value": value})


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    """Run a cluster that serves both flavours, with three nodes in two racks and two priority classes."""
    with Cluster(ClusterSpec(gates="native")) as running:

        async def prepare() -> None:
            async with Connection.from_kubeconfig(running.kubeconfig) as connection:
                await _prepare(connection)

        asyncio.run(prepare())
        yield running


class Webhook:
    """The address of the webhook, and its certificate."""

    def __init__(self, folder: Path) -> None:
        """Issue a certificate."""
        self.address = f"{LOOPBACK}:{free_port()}"
        self.folder = str(folder)
        self.rotate()

    def rotate(self) -> None:
        """Replace the certificate by one of another authority."""
        folder = Path(self.folder)
        made = issue(folder, now=dt.datetime.fromtimestamp(time.time(), dt.UTC), service_ip="10.0.0.1")
        made.server_key.rename(folder / "tls.key")
        made.server.rename(folder / "tls.crt")
        self.authority = made.ca.read_bytes()


@pytest.fixture(scope="package")
def webhook(tmp_path_factory: pytest.TempPathFactory) -> Webhook:
    """Return the webhook of the operator; the API server calls it only in tests that configure it."""
    return Webhook(tmp_path_factory.mktemp("webhook"))


@pytest.fixture(scope="package")
def operator(
    cluster: Cluster, install: "Installer", webhook: Webhook, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Run the operator, with the webhook and without a lease, which a killed operator would keep for a while."""
    alone = {"settings": {"leaderElect": False}}
    (deployment,) = install(cluster, {"scheduler": {"enabled": False}, "operator": alone}).deployments
    files = json.loads(cluster.kubectl("get", "configmap", *PLACE, "-o", "json").stdout)["data"]
    asked = {"webhook": {"listen": webhook.address, "certificates": webhook.folder}}
    changed = {"data": {"settings.yaml": files["settings.yaml"] + yaml.safe_dump(asked)}}
    cluster.kubectl("patch", "configmap", *PLACE, "--type=merge", "--patch", json.dumps(changed))
    folder = tmp_path_factory.mktemp("operator")
    process = OperatorProcess(lambda: PodProcess(cluster.access, deployment, folder))
    process.start()
    yield process
    process.end()


@pytest.fixture
async def connection(cluster: Cluster) -> AsyncIterator[Connection]:
    """Connect as the administrator."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        yield connection


@pytest.fixture
async def testbed(
    connection: Connection,
    operator: OperatorProcess,  # noqa: ARG001  # it has to run
    request: pytest.FixtureRequest,
) -> Testbed:
    """Return a namespace of the test's own, for our flavour."""
    letters = (letter if letter.isalnum() else "-" for letter in request.node.name.lower())
    name = "".join(letters)[-60:].strip("-")
    await connection.post(NAMESPACES.path(), {"metadata": {"name": name}})
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    path = f"/api/v1/namespaces/{name}/serviceaccounts/default"  # where controllers run, one makes it too
    await connection.patch(path, account, APPLY_YAML, params={"fieldManager": "test", "force": "true"})
    return Testbed(connection, name)


@pytest.fixture
def native(testbed: Testbed) -> Testbed:
    """Return the same namespace, for the built-in flavour."""
    return Testbed(testbed.connection, testbed.namespace, NATIVE)
