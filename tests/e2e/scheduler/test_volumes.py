"""Pods with volumes, on a real API server with the controllers that bind claims; the tests act as provisioners."""

import asyncio
import contextlib
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_api.meta import ObjectMeta
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.patching import bind
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

TIMEOUT_SECONDS = 15.0
SELECTED = "volume.kubernetes.io/selected-node"
NODES = ("n1", "n2", "n3")
Plain = dict[str, Any]

pytestmark = pytest.mark.e2e


def claim_spec(storage_class: str, mode: str = "ReadWriteOnce") -> Plain:
    """Return the spec of a claim."""
    return {
        "storageClassName": storage_class,
        "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
    }


class NamespaceClient:
    """Creates and reads the objects of one namespace."""

    def __init__(self, connection: Connection, name: str) -> None:
        """Use a namespace that exists."""
        self.connection = connection
        self.name = name

    def path(self, plural: str, name: str = "", api: str = "/api/v1") -> str:
        """Return the path of the objects of a kind, or of one of them."""
        return f"{api}/namespaces/{self.name}/{plural}" + (f"/{name}" if name else "")

    async def get(self, path: str) -> Plain:
        """Return an object or a list."""
        found: Plain = msgspec.json.decode(await self.connection.get(path))
        return found

    async def create_gang(self, name: str, gang: int) -> None:
        """Create a PodGroup that is a gang."""
        api = "scheduling.cpg.dev/v1alpha3"
        spec = {"schedulingPolicy": {"gang": {"minCount": gang}}}
        body = {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
        await self.connection.post(self.path("podgroups", api=f"/apis/{api}"), body)

    async def create_pod(self, name: str, *claims: str, group: str = "", volumes: tuple[Plain, ...] = ()) -> None:
        """Create a pod that requests one CPU and uses claims."""
        used = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        labels = {"scheduling.cpg.dev/pod-group": group} if group else {}
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": "cpg-scheduler", "containers": [container], "volumes": [*used, *volumes]}
        await self.connection.post(self.path("pods"), {"metadata": {"name": name, "labels": labels}, "spec": spec})

    async def create_claim(self, name: str, storage_class: str, mode: str = "ReadWriteOnce", volume: str = "") -> None:
        """Create a claim."""
        spec = claim_spec(storage_class, mode) | ({"volumeName": volume} if volume else {})
        body = {"metadata": {"name": name}, "spec": spec}
        await self.connection.post(self.path("persistentvolumeclaims"), body)

    async def wait_for_selected_node(self, name: str) -> str:
        """Return the node that the scheduler has selected for a claim."""
        found: list[str] = []

        async def holds() -> bool:
            claim = await self.get(self.path("persistentvolumeclaims", name))
            found[:] = filter(None, [claim["metadata"].get("annotations", {}).get(SELECTED)])
            return bool(found)

        await self.wait_until(holds, f"{name} has no selected node")
        return found[0]

    async def provision(self, name: str) -> None:
        """Create the volume of a claim, reachable from all nodes."""
        claim = await self.get(self.path("persistentvolumeclaims", name))
        await create_volume(
            self.connection, f"made-{claim['metadata']['uid']}", "made", claim=_reference(claim["metadata"])
        )

    async def create_foreign_pod(self, name: str, node: str, cpu: str) -> None:
        """Create a pod of another scheduler that is bound to a node."""
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "none", "nodeName": node, "containers": [container]}
        await self.connection.post(self.path("pods"), {"metadata": {"name": name}, "spec": spec})

    async def bound_pods(self) -> dict[str, str]:
        """Return the nodes of the bound pods."""
        items = (await self.get(self.path("pods")))["items"]
        return {item["metadata"]["name"]: node for item in items if (node := item["spec"].get("nodeName"))}

    async def pod_message(self, name: str) -> str:
        """Return the message of the condition PodScheduled; empty without it."""
        conditions = (await self.get(self.path("pods", name)))["status"].get("conditions", ())
        return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")

    async def gang_condition(self, name: str) -> tuple[str, str]:
        """Return status and message of the scheduling condition of a gang."""
        found = await self.get(self.path("podgroups", name, "/apis/scheduling.cpg.dev/v1alpha3"))
        kind = "PodGroupInitiallyScheduled"
        shown = next(one for one in found["status"]["conditions"] if one["type"] == kind)
        return shown["status"], shown["message"]

    async def claim_phase(self, name: str) -> str:
        """Return the phase of a claim."""
        phase: str = (await self.get(self.path("persistentvolumeclaims", name)))["status"].get("phase", "")
        return phase

    async def wait_until(self, holds: Callable[[], Any], problem: str) -> None:
        """Wait until a condition is true; fail with the problem otherwise."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not await holds():
            assert time.monotonic() < deadline, problem
            await asyncio.sleep(0.1)

    async def wait_until_bound(self, *names: str) -> dict[str, str]:
        """Wait until these pods are bound, and return the nodes of all bound pods."""

        async def holds() -> bool:
            return set(names) <= (await self.bound_pods()).keys()

        await self.wait_until(holds, f"{names} are not bound")
        return await self.bound_pods()

    async def wait_until_claim_bound(self, name: str) -> None:
        """Wait until a claim has the phase Bound, which is the last write of its bind."""

        async def holds() -> bool:
            return await self.claim_phase(name) == "Bound"

        await self.wait_until(holds, f"claim {name} is not bound")

    async def wait_for_message(self, name: str, text: str) -> None:
        """Wait until the condition PodScheduled of a pod has this text in its message."""
        messages: list[str] = []

        async def holds() -> bool:
            messages.append(await self.pod_message(name))
            return text in messages[-1]

        try:
            await self.wait_until(holds, f"{name} has no message with {text!r}")
        except AssertionError as error:
            raise AssertionError(f"{name} had the messages {list(dict.fromkeys(messages))}") from error


async def create_volume(
    connection: Connection,
    name: str,
    storage_class: str,
    *,
    node: str = "",
    mode: str = "ReadWriteOnce",
    claim: Plain | None = None,
) -> None:
    """Create a volume, reachable from one node or from all."""
    spec: Plain = {
        "capacity": {"storage": "1Gi"},
        "accessModes": [mode],
        "storageClassName": storage_class,
        "hostPath": {"path": "/tmp/none"},  # noqa: S108 - never mounted
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if node:
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    if claim is not None:
        spec["claimRef"] = claim
    await connection.post("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})


def _reference(meta: Plain) -> Plain:
    """Return the reference of a volume to its claim."""
    kind = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    return kind | {key: meta[key] for key in ("namespace", "name", "uid")}


class Provisioner:
    """Creates volumes for claims with a selected node, or refuses the node by removing the annotation."""

    def __init__(self, namespace: NamespaceClient, storage_class: str) -> None:
        """Serve the claims of a storage class in a namespace."""
        self._namespace = namespace
        self._class = storage_class
        self.refuses = False
        self.refusals = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            for claim in (await self._namespace.get(self._namespace.path("persistentvolumeclaims")))["items"]:
                node = claim["metadata"].get("annotations", {}).get(SELECTED)
                spec = claim["spec"]
                if node and spec["storageClassName"] == self._class and not spec.get("volumeName"):
                    with contextlib.suppress(ApiError):
                        await self._serve(claim["metadata"], node)
            await asyncio.sleep(0.1)

    async def _serve(self, meta: Plain, node: str) -> None:
        if self.refuses:
            self.refusals += 1
            path = self._namespace.path("persistentvolumeclaims", meta["name"])
            await self._namespace.connection.patch(path, {"metadata": {"annotations": {SELECTED: None}}})
            return
        name = f"made-{meta['uid']}"
        await create_volume(self._namespace.connection, name, self._class, node=node, claim=_reference(meta))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with three nodes and the controllers that bind claims."""
    with Cluster(ClusterSpec(components=("controller-manager",))) as running:
        running.kubectl("apply", "-f", "-", input=msgspec.json.encode(_basics()).decode())
        yield running


def _basics() -> Plain:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    items: list[Plain] = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            "status": {"capacity": amounts, "allocatable": amounts},
        }
        for name in NODES
    ]
    late, now = "WaitForFirstConsumer", "Immediate"
    none = "kubernetes.io/no-provisioner"
    for name, provisioner, mode in (("local", none, late), ("made", "test.example.com", late), ("at-once", none, now)):
        meta = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}}
        items.append(meta | {"provisioner": provisioner, "volumeBindingMode": mode})
    return {"apiVersion": "v1", "kind": "List", "items": items}


@pytest.fixture(scope="module", autouse=True)
def scheduler(cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run our scheduler with the chart's settings; return its log."""
    with install.scheduler(cluster, tmp_path_factory.mktemp("scheduler"), api="crd") as log:
        yield log


@pytest.fixture
async def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[NamespaceClient]:
    """Return an empty namespace; its pods are deleted after the test."""
    name = f"volumes-{zlib.crc32(request.node.name.encode())}"
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        await connection.post("/api/v1/namespaces", {"metadata": {"name": name}})
        namespace = NamespaceClient(connection, name)
        while True:
            # Pods are accepted when the namespace has its service account.
            with contextlib.suppress(ApiError):
                await connection.get(namespace.path("serviceaccounts", "default"))
                break
            await asyncio.sleep(0.05)
        yield namespace
        await connection.delete(namespace.path("pods"), {"gracePeriodSeconds": 0})


@contextlib.asynccontextmanager
async def run_provisioner(namespace: NamespaceClient, storage_class: str = "made") -> AsyncIterator[Provisioner]:
    """Run a provisioner in the background."""
    provisioner = Provisioner(namespace, storage_class)
    running = asyncio.create_task(provisioner.run())
    try:
        yield provisioner
    finally:
        running.cancel()


async def _create_bound_claim(namespace: NamespaceClient, name: str) -> None:
    """Create a claim that one pod may use, and the volume to which it is bound."""
    mode = "ReadWriteOncePod"
    await create_volume(namespace.connection, f"{namespace.name}-{name}", "at-once", mode=mode)
    await namespace.create_claim(name, "at-once", mode, f"{namespace.name}-{name}")
    await namespace.wait_until_claim_bound(name)


async def test_a_gang_that_shares_a_read_write_once_pod_claim_is_unschedulable(namespace: NamespaceClient) -> None:
    """The conditions of both pods and of the gang name the cause."""
    await _create_bound_claim(namespace, "pvc-1")
    await namespace.create_gang("pg", 2)
    for name in ("pvc-pod-1", "pvc-pod-2"):
        await namespace.create_pod(name, "pvc-1", group="pg")
    for name in ("pvc-pod-1", "pvc-pod-2"):
        await namespace.wait_for_message(name, "ReadWriteOncePod access mode already in-use by another pod")
    assert await namespace.bound_pods() == {}
    assert (await namespace.gang_condition("pg"))[0] == "False"


async def test_a_gang_with_a_read_write_once_pod_claim_for_each_pod_is_bound(namespace: NamespaceClient) -> None:
    """Each claim is used by one pod only."""
    await namespace.create_gang("pg", 2)
    for number in (1, 2):
        await _create_bound_claim(namespace, f"pvc-{number}")
        await namespace.create_pod(f"pvc-pod-{number}", f"pvc-{number}", group="pg")
    await namespace.wait_until_bound("pvc-pod-1", "pvc-pod-2")


async def test_a_pod_is_bound_to_the_node_of_the_available_volume(namespace: NamespaceClient) -> None:
    """With WaitForFirstConsumer, the scheduler writes the claim into the volume, and binds the pod afterwards."""
    await create_volume(namespace.connection, "on-n2", "local", node="n2")
    await namespace.create_claim("data", "local")
    await namespace.create_pod("p", "data")
    assert await namespace.wait_until_bound("p") == {"p": "n2"}
    await namespace.wait_until_claim_bound("data")
    made = await namespace.get("/api/v1/persistentvolumes/on-n2")
    assert made["spec"]["claimRef"]["name"] == "data"
    assert made["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"


async def test_volumes_of_a_gang_are_provisioned_on_the_nodes_of_its_pods(namespace: NamespaceClient) -> None:
    """The scheduler selects a node for each claim, also of ephemeral volumes, and binds when the volumes exist."""
    template = {"spec": claim_spec("made")}
    await namespace.create_gang("pg", 4)
    for number in range(3):
        await namespace.create_claim(f"data-{number}", "made")
        await namespace.create_pod(f"p-{number}", f"data-{number}", group="pg")
    await namespace.create_pod(
        "p-3", group="pg", volumes=({"name": "own", "ephemeral": {"volumeClaimTemplate": template}},)
    )
    async with run_provisioner(namespace):
        nodes = await namespace.wait_until_bound("p-0", "p-1", "p-2", "p-3")
    for number, name in enumerate(("data-0", "data-1", "data-2", "p-3-own")):
        claim = await namespace.get(namespace.path("persistentvolumeclaims", name))
        assert claim["metadata"]["annotations"][SELECTED] == nodes[f"p-{number}"]


async def test_no_pod_of_a_gang_is_bound_while_one_volume_cannot_be_provisioned(namespace: NamespaceClient) -> None:
    """The conditions of all pods name the claim. The pods are bound together when the provisioner succeeds."""
    await create_volume(namespace.connection, "there", "local", node="n1")
    await namespace.create_claim("there", "local")
    await namespace.create_claim("refused", "made")
    await namespace.create_gang("pg", 2)
    async with run_provisioner(namespace) as provisioner:
        provisioner.refuses = True
        await namespace.create_pod("with-volume", "there", group="pg")
        await namespace.create_pod("without-volume", "refused", group="pg")
        for name in ("with-volume", "without-volume"):
            await namespace.wait_for_message(
                name, f'no volume could be made for persistentvolumeclaim "{namespace.name}/refused"'
            )
        assert await namespace.bound_pods() == {}
        status, message = await namespace.gang_condition("pg")
        assert (status, "no volume could be made" in message) == ("False", True)
        before = provisioner.refusals
        await asyncio.sleep(1.5)
        assert provisioner.refusals <= before + 3, "the scheduler does not back off"
        provisioner.refuses = False
        await namespace.wait_until_bound("with-volume", "without-volume")


async def test_a_gang_moves_when_other_pods_take_its_nodes_before_its_volumes_exist(
    namespace: NamespaceClient, scheduler: Path
) -> None:
    """No pod is added to the full nodes; the whole gang is bound to nodes with room."""
    await namespace.create_gang("pg", 2)
    for number in range(2):
        await namespace.create_claim(f"data-{number}", "made")
        await namespace.create_pod(f"p-{number}", f"data-{number}", group="pg")
    chosen = [await namespace.wait_for_selected_node(f"data-{number}") for number in range(2)]
    foreign = {f"foreign-{node}": node for node in set(chosen)}
    for name, node in foreign.items():
        await namespace.create_foreign_pod(name, node, cpu="4")
    await asyncio.sleep(0.3)  # pods and claims have separate watches
    for number in range(2):
        await namespace.provision(f"data-{number}")
    nodes = await namespace.wait_until_bound("p-0", "p-1")
    assert not {nodes["p-0"], nodes["p-1"]} & set(chosen)
    assert {name: nodes[name] for name in foreign} == foreign
    assert any("too full" in line for line in _log_lines(scheduler, "binds dropped", f"{namespace.name}/pg"))


def _log_lines(log: Path, event: str, root: str) -> list[str]:
    """Return the lines of an event about a unit."""
    return [line for line in log.read_text().splitlines() if f'"{event}"' in line and root in line]


async def test_a_pod_waits_for_a_missing_claim(namespace: NamespaceClient) -> None:
    """The condition names the claim, and the pod is bound when it exists."""
    await create_volume(namespace.connection, "for-late-claim", "local", node="n3")
    await namespace.create_pod("early", "late")
    await namespace.wait_for_message("early", 'persistentvolumeclaim "late" not found')
    await namespace.create_claim("late", "local")
    assert await namespace.wait_until_bound("early") == {"early": "n3"}


async def test_a_bind_that_admission_refuses_is_reported_and_retried(namespace: NamespaceClient) -> None:
    """The conditions of pod and gang have the policy's message. Without the policy, the pod is bound."""
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    await _create_policy(namespace, policies)
    await namespace.create_gang("pg", 1)
    await namespace.create_pod("barred", group="pg")
    await namespace.wait_for_message("barred", "refused by policy")
    status, message = await namespace.gang_condition("pg")
    assert (status, "refused by policy" in message) == ("False", True)
    await namespace.connection.delete(f"{policies}/bar")
    await namespace.wait_until_bound("barred")


async def _create_policy(namespace: NamespaceClient, policies: str) -> None:
    """Create an admission policy that refuses binds of pods named barred, and wait until it is effective."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"], "operations": ["CREATE"]}]
    validations = [{"expression": "request.name != 'barred'", "message": "refused by policy"}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": validations, "failurePolicy": "Fail"}
    await namespace.connection.post(policies, {"metadata": {"name": "bar"}, "spec": spec})
    deny = {"policyName": "bar", "validationActions": ["Deny"]}
    bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    await namespace.connection.post(bindings, {"metadata": {"name": "bar"}, "spec": deny})

    async def holds() -> bool:
        with pytest.raises(ApiError) as caught:
            await bind(namespace.connection, ObjectMeta(name="barred", namespace=namespace.name), "n1")
        return caught.value.status in {HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.FORBIDDEN}

    await namespace.wait_until(holds, "the policy is not effective")
