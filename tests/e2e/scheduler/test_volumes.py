"""Pods with volumes, on a real API server with the controllers that bind claims; the tests play the provisioners."""

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

PATIENCE = 15.0
SELECTED = "volume.kubernetes.io/selected-node"
NODES = ("n1", "n2", "n3")
Plain = dict[str, Any]

pytestmark = pytest.mark.e2e


def claim_spec(storage_class: str, mode: str = "ReadWriteOnce") -> Plain:
    """Return what a claim asks for."""
    return {
        "storageClassName": storage_class,
        "accessModes": [mode],
        "resources": {"requests": {"storage": "1Gi"}},
    }


class Place:
    """A namespace of a cluster."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        """Work in a namespace."""
        self.connection = connection
        self.namespace = namespace

    def path(self, plural: str, name: str = "", api: str = "/api/v1") -> str:
        """Return where objects of the namespace are."""
        return f"{api}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    async def get(self, path: str) -> Plain:
        """Read something."""
        found: Plain = msgspec.json.decode(await self.connection.get(path))
        return found

    async def group(self, name: str, gang: int) -> None:
        """Create a gang."""
        api = "scheduling.cpg.dev/v1alpha3"
        spec = {"schedulingPolicy": {"gang": {"minCount": gang}}}
        body = {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}
        await self.connection.post(self.path("podgroups", api=f"/apis/{api}"), body)

    async def pod(self, name: str, *claims: str, group: str = "", volumes: tuple[Plain, ...] = ()) -> None:
        """Create a pod of one CPU that uses claims."""
        used = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        labels = {"scheduling.cpg.dev/pod-group": group} if group else {}
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}
        spec = {"schedulerName": "cpg-scheduler", "containers": [container], "volumes": [*used, *volumes]}
        await self.connection.post(self.path("pods"), {"metadata": {"name": name, "labels": labels}, "spec": spec})

    async def claim(self, name: str, storage_class: str, mode: str = "ReadWriteOnce", volume: str = "") -> None:
        """Create a claim."""
        spec = claim_spec(storage_class, mode) | ({"volumeName": volume} if volume else {})
        body = {"metadata": {"name": name}, "spec": spec}
        await self.connection.post(self.path("persistentvolumeclaims"), body)

    async def until_selected(self, name: str) -> str:
        """Return the node that a claim has been told."""
        found: list[str] = []

        async def holds() -> bool:
            claim = await self.get(self.path("persistentvolumeclaims", name))
            found[:] = filter(None, [claim["metadata"].get("annotations", {}).get(SELECTED)])
            return bool(found)

        await self.until(holds, f"{name} has no node")
        return found[0]

    async def make(self, name: str) -> None:
        """Make the volume of a claim, reachable from everywhere."""
        claim = await self.get(self.path("persistentvolumeclaims", name))
        await volume(self.connection, f"made-{claim['metadata']['uid']}", "made", claim=_reference(claim["metadata"]))

    async def intrude(self, name: str, node: str, cpu: str) -> None:
        """Put a pod of nobody's onto a node."""
        container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "nobody", "nodeName": node, "containers": [container]}
        await self.connection.post(self.path("pods"), {"metadata": {"name": name}, "spec": spec})

    async def bound(self) -> dict[str, str]:
        """Return which pods have which node."""
        items = (await self.get(self.path("pods")))["items"]
        return {item["metadata"]["name"]: node for item in items if (node := item["spec"].get("nodeName"))}

    async def said(self, name: str) -> str:
        """Return what the condition of a pod says."""
        conditions = (await self.get(self.path("pods", name)))["status"].get("conditions", ())
        return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")

    async def said_of_group(self, name: str) -> tuple[str, str]:
        """Return status and message of a gang's condition."""
        found = await self.get(self.path("podgroups", name, "/apis/scheduling.cpg.dev/v1alpha3"))
        kind = "PodGroupInitiallyScheduled"
        shown = next(one for one in found["status"]["conditions"] if one["type"] == kind)
        return shown["status"], shown["message"]

    async def phase(self, name: str) -> str:
        """Return what has become of a claim."""
        phase: str = (await self.get(self.path("persistentvolumeclaims", name)))["status"].get("phase", "")
        return phase

    async def until(self, holds: Callable[[], Any], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + PATIENCE
        while not await holds():
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.1)

    async def until_bound(self, *names: str) -> dict[str, str]:
        """Wait until pods have a node, and return which."""

        async def holds() -> bool:
            return set(names) <= (await self.bound()).keys()

        await self.until(holds, f"{names} are not bound")
        return await self.bound()

    async def until_claimed(self, name: str) -> None:
        """Wait until a claim says that it is bound, which is the last that is written of it."""

        async def holds() -> bool:
            return await self.phase(name) == "Bound"

        await self.until(holds, f"claim {name} is not bound")

    async def until_said(self, name: str, words: str) -> None:
        """Wait until the condition of a pod has certain words in it."""

        async def holds() -> bool:
            heard.append(await self.said(name))
            return words in heard[-1]

        heard: list[str] = []
        try:
            await self.until(holds, f"{name} does not say {words!r}")
        except AssertionError as error:
            raise AssertionError(f"{name} said {dict.fromkeys(heard)}") from error


async def volume(
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
        "hostPath": {"path": "/tmp/none"},  # noqa: S108 - nobody mounts it
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if node:
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    if claim is not None:
        spec["claimRef"] = claim
    await connection.post("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})


def _reference(meta: Plain) -> Plain:
    """Return how a volume names its claim."""
    kind = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    return kind | {key: meta[key] for key in ("namespace", "name", "uid")}


class Provisioner:
    """Makes volumes for claims that are told a node, or takes the node back."""

    def __init__(self, place: Place, storage_class: str) -> None:
        """Serve the claims of a class in a namespace."""
        self._place = place
        self._class = storage_class
        self.refuses = False
        self.refusals = 0

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            for claim in (await self._place.get(self._place.path("persistentvolumeclaims")))["items"]:
                node = claim["metadata"].get("annotations", {}).get(SELECTED)
                spec = claim["spec"]
                if node and spec["storageClassName"] == self._class and not spec.get("volumeName"):
                    with contextlib.suppress(ApiError):
                        await self._serve(claim["metadata"], node)
            await asyncio.sleep(0.1)

    async def _serve(self, meta: Plain, node: str) -> None:
        if self.refuses:
            self.refusals += 1
            path = self._place.path("persistentvolumeclaims", meta["name"])
            await self._place.connection.patch(path, {"metadata": {"annotations": {SELECTED: None}}})
            return
        name = f"made-{meta['uid']}"
        await volume(self._place.connection, name, self._class, node=node, claim=_reference(meta))


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
    """Run our scheduler as the chart does; return its log."""
    with install.scheduler(cluster, tmp_path_factory.mktemp("scheduler"), api="crd") as log:
        yield log


@pytest.fixture
async def place(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """Return an empty namespace; it takes its pods with it."""
    name = f"place-{zlib.crc32(request.node.name.encode())}"
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        await connection.post("/api/v1/namespaces", {"metadata": {"name": name}})
        place = Place(connection, name)
        while True:
            # Pods may be made when the namespace has got its service account.
            with contextlib.suppress(ApiError):
                await connection.get(place.path("serviceaccounts", "default"))
                break
            await asyncio.sleep(0.05)
        yield place
        await connection.delete(place.path("pods"), {"gracePeriodSeconds": 0})


@contextlib.asynccontextmanager
async def provisioning(place: Place, storage_class: str = "made") -> AsyncIterator[Provisioner]:
    """Have somebody make volumes meanwhile."""
    provisioner = Provisioner(place, storage_class)
    running = asyncio.create_task(provisioner.run())
    try:
        yield provisioner
    finally:
        running.cancel()


async def _bound_claim(place: Place, name: str) -> None:
    """Create a claim that bears one pod, and the volume that it is bound to."""
    mode = "ReadWriteOncePod"
    await volume(place.connection, f"{place.namespace}-{name}", "at-once", mode=mode)
    await place.claim(name, "at-once", mode, f"{place.namespace}-{name}")
    await place.until_claimed(name)


async def test_a23_a_gang_that_shares_a_claim_for_one_pod_waits(place: Place) -> None:
    """Both its pods and the gang itself say why."""
    await _bound_claim(place, "pvc-1")
    await place.group("pg", 2)
    for name in ("pvc-pod-1", "pvc-pod-2"):
        await place.pod(name, "pvc-1", group="pg")
    for name in ("pvc-pod-1", "pvc-pod-2"):
        await place.until_said(name, "ReadWriteOncePod access mode already in-use by another pod")
    assert await place.bound() == {}
    assert (await place.said_of_group("pg"))[0] == "False"


async def test_a24_a_gang_with_a_claim_for_each_is_bound(place: Place) -> None:
    """The claims that bear one pod bear one each."""
    await place.group("pg", 2)
    for number in (1, 2):
        await _bound_claim(place, f"pvc-{number}")
        await place.pod(f"pvc-pod-{number}", f"pvc-{number}", group="pg")
    await place.until_bound("pvc-pod-1", "pvc-pod-2")


async def test_a_volume_that_waits_for_its_consumer_draws_it_to_its_node(place: Place) -> None:
    """It is set aside for the claim, which is bound before the pod is."""
    await volume(place.connection, "draws", "local", node="n2")
    await place.claim("data", "local")
    await place.pod("p", "data")
    assert await place.until_bound("p") == {"p": "n2"}
    await place.until_claimed("data")
    made = await place.get("/api/v1/persistentvolumes/draws")
    assert made["spec"]["claimRef"]["name"] == "data"
    assert made["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"


async def test_volumes_are_made_where_the_pods_of_a_gang_are(place: Place) -> None:
    """Each claim is told the node, and its pod comes when the volume is there; ephemeral ones are no different."""
    template = {"spec": claim_spec("made")}
    await place.group("pg", 4)
    for number in range(3):
        await place.claim(f"data-{number}", "made")
        await place.pod(f"p-{number}", f"data-{number}", group="pg")
    await place.pod("p-3", group="pg", volumes=({"name": "own", "ephemeral": {"volumeClaimTemplate": template}},))
    async with provisioning(place):
        nodes = await place.until_bound("p-0", "p-1", "p-2", "p-3")
    for number, name in enumerate(("data-0", "data-1", "data-2", "p-3-own")):
        claim = await place.get(place.path("persistentvolumeclaims", name))
        assert claim["metadata"]["annotations"][SELECTED] == nodes[f"p-{number}"]


async def test_a_gang_of_which_one_volume_cannot_be_made_stays_unbound_as_a_whole(place: Place) -> None:
    """All its pods say why, and are bound together when the provisioner has come to its senses."""
    await volume(place.connection, "there", "local", node="n1")
    await place.claim("there", "local")
    await place.claim("refused", "made")
    await place.group("pg", 2)
    async with provisioning(place) as provisioner:
        provisioner.refuses = True
        await place.pod("lucky", "there", group="pg")
        await place.pod("unlucky", "refused", group="pg")
        for name in ("lucky", "unlucky"):
            await place.until_said(
                name, f'no volume could be made for persistentvolumeclaim "{place.namespace}/refused"'
            )
        assert await place.bound() == {}
        status, message = await place.said_of_group("pg")
        assert (status, "no volume could be made" in message) == ("False", True)
        before = provisioner.refusals
        await asyncio.sleep(1.5)
        assert provisioner.refusals <= before + 3, "it does not back off"
        provisioner.refuses = False
        await place.until_bound("lucky", "unlucky")


async def test_a_rival_that_is_bound_while_a_gang_waits_for_its_volumes_sends_it_elsewhere(
    place: Place, scheduler: Path
) -> None:
    """Nothing is added to the nodes that were chosen for it; the whole gang is bound where there is room by then."""
    await place.group("pg", 2)
    for number in range(2):
        await place.claim(f"data-{number}", "made")
        await place.pod(f"p-{number}", f"data-{number}", group="pg")
    chosen = [await place.until_selected(f"data-{number}") for number in range(2)]
    rivals = {f"rival-{node}": node for node in set(chosen)}
    for name, node in rivals.items():
        await place.intrude(name, node, cpu="4")
    await asyncio.sleep(0.3)  # the scheduler hears of pods and claims apart
    for number in range(2):
        await place.make(f"data-{number}")
    nodes = await place.until_bound("p-0", "p-1")
    assert not {nodes["p-0"], nodes["p-1"]} & set(chosen)
    assert {name: nodes[name] for name in rivals} == rivals
    assert any("too full" in line for line in _said(scheduler, "order given back", f"{place.namespace}/pg"))


def _said(log: Path, event: str, root: str) -> list[str]:
    """Return the lines of a log about something of a root."""
    return [line for line in log.read_text().splitlines() if f'"{event}"' in line and root in line]


async def test_a_claim_may_come_after_its_pod(place: Place) -> None:
    """The pod says which it waits for, and goes when it is there."""
    await volume(place.connection, "comes-late", "local", node="n3")
    await place.pod("early", "late")
    await place.until_said("early", 'persistentvolumeclaim "late" not found')
    await place.claim("late", "local")
    assert await place.until_bound("early") == {"early": "n3"}


async def test_binds_that_admission_refuses_back_off_and_say_so(place: Place) -> None:
    """Pod and gang tell the policy's words; without it they are bound."""
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    await _bar(place, policies)
    await place.group("pg", 1)
    await place.pod("barred", group="pg")
    await place.until_said("barred", "not this one")
    status, message = await place.said_of_group("pg")
    assert (status, "not this one" in message) == ("False", True)
    await place.connection.delete(f"{policies}/bar")
    await place.until_bound("barred")


async def _bar(place: Place, policies: str) -> None:
    """Forbid to bind pods of a certain name, and wait until that is so."""
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/binding"], "operations": ["CREATE"]}]
    validations = [{"expression": "request.name != 'barred'", "message": "not this one"}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": validations, "failurePolicy": "Fail"}
    await place.connection.post(policies, {"metadata": {"name": "bar"}, "spec": spec})
    deny = {"policyName": "bar", "validationActions": ["Deny"]}
    bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    await place.connection.post(bindings, {"metadata": {"name": "bar"}, "spec": deny})

    async def holds() -> bool:
        with pytest.raises(ApiError) as caught:
            await bind(place.connection, ObjectMeta(name="barred", namespace=place.namespace), "n1")
        return caught.value.status in {HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.FORBIDDEN}

    await place.until(holds, "the policy does nothing")
