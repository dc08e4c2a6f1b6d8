"""A real API server, our scheduler as a process, and a stage on which scenario files are played there."""

import asyncio
import contextlib
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.manifests import to_manifest
from cpg_api.scheduling.forest import Group, key_of
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.names import (
    EVENT_FAILED_SCHEDULING,
    EVENT_PREEMPTED,
    POD_GROUP_LABEL,
    POD_SCHEDULED,
    SCHEDULER_NAME,
)
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.resources import (
    CPG_COMPOSITE_POD_GROUPS,
    CPG_POD_GROUPS,
    EVENTS,
    NAMESPACES,
    NATIVE_COMPOSITE_POD_GROUPS,
    NATIVE_POD_GROUPS_ALPHA,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    STATUS,
)
from cpg_client.watching import watch
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.scenario_expectations import Expected, unmet
from cpg_engine.testing.scenario_forms import BudgetForm
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

PATIENCE = 20.0
NUMBERS = re.compile(r"\d+|s\b|\b(is|are|none)\b")
"""What words about the same cause may differ in."""
QUIET = 0.5
"""Seconds in which nobody more is evicted, where somebody waits who might do it."""
EITHER = (PODS, NODES, EVENTS, POD_DISRUPTION_BUDGETS, PRIORITY_CLASSES)
KINDS = {
    "crd": {one.kind: one for one in (*EITHER, CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS)},
    "native": {one.kind: one for one in (*EITHER, NATIVE_POD_GROUPS_ALPHA, NATIVE_COMPOSITE_POD_GROUPS)},
}
PREEMPTED = re.compile(r"Preempted by (pod|podgroup|compositepodgroup) \S+: ")
Plain = dict[str, Any]


class Watcher:
    """Follows the pods of a namespace on a thread of its own, and notes what nobody could see afterwards."""

    def __init__(self, cluster: Cluster, namespace: str, version: str) -> None:
        """Begin with what comes after that version."""
        self.nominated: dict[str, str] = {}
        """The node to which each pod was nominated last, before it was bound."""
        self._cluster, self._namespace, self._version = cluster, namespace, version
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._follow())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.close()

    async def _follow(self) -> None:
        async with Connection.from_kubeconfig(self._cluster.kubeconfig) as connection:
            async for event in watch(connection, PODS.path(self._namespace), self._version):
                pod: Plain = msgspec.json.decode(event.object)
                if pod.get("status", {}).get("nominatedNodeName") and not pod["spec"].get("nodeName"):
                    self.nominated[pod["metadata"]["name"]] = pod["status"]["nominatedNodeName"]

    def end(self) -> None:
        """Follow no more."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()


class Live(ClusterSimulator):
    """A stage whose objects are on an API server, where our scheduler decides about them."""

    def __init__(self, cluster: Cluster, server: BlockingClient, flavour: str, namespace: str) -> None:
        """Start with an empty namespace of that name."""
        super().__init__(SearchOptions())
        self._cluster = cluster
        self.server = server
        self._flavour = flavour
        self.namespace = namespace
        self._classes: set[str] = set()
        self._batch: list[Plain] = []
        self._waiting: list[Plain] = []
        self._allowances: dict[str, int] = {}
        self._preempted: set[str] = set()
        made = server.create(NAMESPACES.path(), {"metadata": {"name": namespace}})
        self._watcher = Watcher(cluster, namespace, made["metadata"]["resourceVersion"])

    def path(self, kind: str, name: str | None = None, subresource: str | None = None) -> str:
        """Return where an object of the flavour is, or where all of a kind are."""
        resource = KINDS[self._flavour][kind]
        return resource.path(self.namespace if resource.namespaced else None, name, subresource)

    def put_node(self, node: Node) -> None:
        """Create a node, ready at once, or change its labels and spec."""
        is_new = node.metadata.name not in self.nodes
        self.nodes[node.metadata.name] = node
        plain = _plain(node, "v1", "Node")
        if not is_new:
            self.flush()
            changed = {"metadata": {"labels": plain["metadata"].get("labels", {})}, "spec": plain.get("spec", {})}
            self.server.merge(self.path("Node", node.metadata.name), changed)
            return
        plain["status"]["capacity"] = plain["status"]["allocatable"]
        self._create(plain)

    def put_group(self, group: Group) -> None:
        """Create a group, or change its minimum."""
        is_new = key_of(group) not in self.groups
        self.groups[key_of(group)] = group
        plain = to_manifest(group, native=self._flavour == "native")
        if not is_new:
            self.flush()
            changed = {"spec": {"schedulingPolicy": plain["spec"]["schedulingPolicy"]}}
            self.server.merge(self.path(group.kind, group.metadata.name), changed)
            return
        plain.pop("status", None)
        self._prioritise(plain["spec"], group.spec.priority)
        self._create(plain)

    def put_pod(self, pod: Pod) -> None:
        """Create a pod, or bring it to its end."""
        if pod.metadata.name in self.pods:
            self.flush()
            self.pods[pod.metadata.name] = pod
            ended = {"status": {"phase": pod.status.phase}}
            self.server.merge(self.path("Pod", pod.metadata.name, STATUS), ended)
            return
        self.pods[pod.metadata.name] = pod
        plain = _plain(pod, "v1", "Pod")
        plain.pop("status", None)
        self._prioritise(plain["spec"], pod.spec.priority)
        plain["spec"].setdefault("terminationGracePeriodSeconds", 0)  # no kubelet ends them
        for constraint in plain["spec"].get("topologySpreadConstraints", ()):
            constraint.setdefault("maxSkew", 1)  # what need not be said to us has to be to the API server
        for container in plain["spec"].setdefault("containers", [{}]):
            container.setdefault("name", "main")
            container.setdefault("image", "busybox")
        if self._flavour == "native" and (group := membership(pod).group):
            del plain["metadata"]["labels"][POD_GROUP_LABEL]
            plain["spec"]["schedulingGroup"] = {"podGroupName": group}
        self._create(plain)

    def put_budget(self, name: str, budget: BudgetForm) -> None:
        """Create a budget; what it allows is set by the test, since no controller runs."""
        self.budgets[name] = budget
        spec = {"selector": {"matchLabels": budget.labels}, "minAvailable": 0}
        self._create({"kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec})
        if budget.allowed:
            self._allowances[name] = budget.allowed

    def delete(self, name: str) -> bool:
        """Delete whatever bears the name."""
        self.flush()
        found = False
        if name in self.nodes:
            del self.nodes[name]
            self.server.delete(self.path("Node", name))
            found = True
        if name in self.pods:
            del self.pods[name]
            self.server.delete(self.path("Pod", name), grace=0)
            found = True
        for key in [key for key in self.groups if key.name == name]:
            del self.groups[key]
            self.server.delete(self.path(key.kind, name))
            found = True
        return found

    def await_expected(self, expected: Expected) -> list[str]:
        """Return what is still unmet when nobody is silent any more, or patience has run out.

        A pod that waits must say why: until it does, the scheduler has not spoken. What groups say must be about them
        as they are, and whoever is told something anew, or evicted, is told so by one event.
        """
        self.flush()
        places = Expected(
            bound=expected.bound,
            nodes=expected.nodes,
            together=expected.together,
            victims=expected.victims,
            nominated=expected.nominated,
            because=expected.because,
            conditions=expected.conditions,
        )
        deadline = time.monotonic() + PATIENCE
        while complaints := self._complaints(places):
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        if not complaints and expected.victims is not None and self._somebody_waits():
            time.sleep(QUIET)
            complaints = self._complaints(places)
        self._preempted |= self.evicted.keys()
        self.evicted.clear()
        self._watcher.nominated.clear()
        return complaints

    def _complaints(self, places: Expected) -> list[str]:
        outdated = self._look()
        self.nominated = set(self._watcher.nominated)
        misreported = self._misreported() if self.evicted or places.victims is not None else []
        complaints = [*unmet(places, self), *outdated, *misreported]
        return complaints or (self._unrecorded() if places.conditions else [])

    def _somebody_waits(self) -> bool:
        """Tell whether there is somebody left who might evict others."""
        return any(not pod.spec.node_name for pod in self.pods.values())

    def clear(self) -> None:
        """Delete everything that was created."""
        self._watcher.end()
        self.server.delete(NAMESPACES.path(name=self.namespace))
        for pod in self._list("Pod"):
            if pod["metadata"].get("finalizers"):  # a test has failed, and the next ones have nodes of the same names
                self.server.merge(self.path("Pod", pod["metadata"]["name"]), {"metadata": {"finalizers": None}})
        for kind in ("Pod", "PodGroup", "CompositePodGroup"):
            self.server.delete(self.path(kind), grace=0)
        if self.nodes:
            self.server.delete(self.path("Node"))

    def _look(self) -> list[str]:
        """Read what there is; return who says nothing though he waits, and who speaks of what is no more."""
        pods = {pod["metadata"]["name"]: pod for pod in self._list("Pod")}
        groups = ("PodGroup", "CompositePodGroup") if self.groups else ()
        found = [("Pod", pod) for pod in pods.values()] + [(kind, item) for kind in groups for item in self._list(kind)]
        gone = self.pods.keys() - pods.keys()
        for name in gone:
            self.evicted[name] = ""
            del self.pods[name]
        for name, pod in self.pods.items():
            self.pods[name] = replace(pod, spec=replace(pod.spec, node_name=pods[name]["spec"].get("nodeName", "")))
        self.said = said = dict[str, str]()
        return [complaint for kind, item in found if (complaint := self._hear(kind, item, said))]

    def _hear(self, kind: str, item: Plain, said: dict[str, str]) -> str:
        """Note what an object says; return what is wrong with that, apart from what it says."""
        meta = item["metadata"]
        wanted = POD_SCHEDULED if kind == "Pod" else f"{kind}InitiallyScheduled"
        conditions = item.get("status", {}).get("conditions", ())
        found: Plain = next((one for one in conditions if one["type"] == wanted), {})
        status = found.get("status", "Unknown")
        message = found.get("message", "").replace(f"{self.namespace}/", "default/")
        said[meta["name"]] = f"{status} {found.get('reason', '')} {message}".rstrip()
        if kind == "Pod":
            waits = not item["spec"].get("nodeName") and item["spec"].get("schedulerName") == SCHEDULER_NAME
            return f"{meta['name']} is silent" if waits and status != "False" else ""
        about = found.get("observedGeneration", 0)
        is_old = status != "Unknown" and about != meta.get("generation", 0)  # the built-in kinds count none
        return f"{meta['name']} speaks of generation {about}" if is_old else ""

    def _unrecorded(self) -> list[str]:
        """Return who says that he failed and was not told so by an event, and by more than one of a cause."""
        told = Counter((name, _cause(note)) for name, note, _ in self._events(EVENT_FAILED_SCHEDULING))
        failed = {name for name, words in (self.said or {}).items() if words.startswith("False")}
        silent = sorted(failed - {name for name, _ in told})
        return [
            *(f"there is no event about {name}" for name in silent),
            *(f"{name} was told {times} times: {note}" for (name, note), times in told.items() if times > 1),
        ]

    def _misreported(self) -> list[str]:
        """Note why each victim went; return whom not exactly one event says it of, in the words that users know."""
        notes: dict[str, list[str]] = {name: [] for name in self.evicted}
        for name, note, _ in self._events(EVENT_PREEMPTED):
            if name not in self._preempted:
                notes.setdefault(name, []).append(note)
        self.evicted.update((name, notes[name][0]) for name in self.evicted if notes[name])
        return [
            f"{name} is gone: {name in self.evicted}, and its eviction is told by {found}"
            for name, found in notes.items()
            if name not in self.evicted or len(found) != 1 or not PREEMPTED.match(found[0])
        ]

    def _events(self, reason: str) -> Iterator[tuple[str, str, int]]:
        """Yield of each event for a reason whom it is about, its words, and how often they were said."""
        for one in self._list("Event"):
            if one["reason"] == reason:
                note = one["note"].replace(f"{self.namespace}/", "default/")
                yield one["regarding"]["name"], note, (one.get("series") or {}).get("count", 1)

    def _prioritise(self, spec: Plain, priority: int | None) -> None:
        """Express a priority, and a pod's preemption policy with it, by a class, as users have to."""
        spec.pop("priority", None)
        if not priority:
            return
        policy = spec.get("preemptionPolicy") or "PreemptLowerPriority"
        name = f"p{priority}-{policy.lower()}"
        spec["priorityClassName"] = name
        if name not in self._classes:
            self._classes.add(name)
            body = {"metadata": {"name": name}, "value": priority, "preemptionPolicy": policy}
            if self.server.find(self.path("PriorityClass", name)) is None:
                self.server.create(self.path("PriorityClass"), body)

    def _create(self, plain: Plain) -> None:
        for field in ("uid", "creationTimestamp"):
            plain["metadata"].pop(field, None)
        if plain["kind"] != "Node":
            plain["metadata"]["namespace"] = self.namespace
        waits = plain["kind"] == "Pod" and not plain["spec"].get("nodeName")
        (self._waiting if waits else self._batch).append(plain)

    def flush(self) -> None:
        """Create what is to be created: who waits comes last, when all that matters to him is there."""
        if self._allowances:
            self._send(self._batch)
            for name, allowed in self._allowances.items():
                counts = dict.fromkeys(("currentHealthy", "desiredHealthy", "expectedPods"), 0)
                status = {"status": {**counts, "disruptionsAllowed": allowed}}
                self.server.merge(self.path("PodDisruptionBudget", name, STATUS), status)
            self._allowances.clear()
            time.sleep(0.3)  # budgets and pods are watched apart
            self._batch.clear()
        self._send([*self._batch, *self._waiting])
        self._batch.clear()
        self._waiting.clear()

    def _send(self, objects: list[Plain]) -> None:
        deadline = time.monotonic() + PATIENCE
        for plain in objects:
            while not self._is_created(plain):
                assert time.monotonic() < deadline, plain
                time.sleep(0.02)

    def _is_created(self, plain: Plain) -> bool:
        """Create an object, unless the server has not heard of a class yet that it has just been given."""
        try:
            self.server.create(self.path(plain["kind"]), plain)
        except ApiError as error:
            if "no PriorityClass with name" not in error.message:
                raise
            return False
        return True

    def _list(self, kind: str) -> list[Plain]:
        found: list[Plain] = self.server.get(self.path(kind))["items"]
        return found


def _cause(note: str) -> str:
    """Return what is wrong without numbers, and what preemption does about it: another plan is news."""
    lack, _, outlook = note.partition("preemption: ")
    return NUMBERS.sub("", lack) + outlook.partition(" (")[0]


def _plain(found: Node | Pod, version: str, kind: str) -> Plain:
    plain: Plain = msgspec.to_builtins(found)
    plain.pop("type", None)
    return {"apiVersion": version, "kind": kind, **plain}


@pytest.fixture(scope="package", params=["crd", "native"])
def flavour(request: pytest.FixtureRequest) -> str:
    """Return the flavour of the API."""
    found: str = request.param
    return found


@pytest.fixture(scope="package")
def cluster(flavour: str) -> Iterator[Cluster]:
    """Run a cluster that serves the flavour."""
    with Cluster(ClusterSpec(gates="native" if flavour == "native" else "default")) as running:
        yield running


@pytest.fixture(scope="package")
def server(cluster: Cluster) -> Iterator[BlockingClient]:
    """Ask the cluster's API server."""
    with BlockingClient(cluster.access) as asking:
        yield asking


@pytest.fixture(scope="package")
def scheduler(
    cluster: Cluster, flavour: str, install: "Installer", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Run our scheduler as the chart does; return its log."""
    folder = tmp_path_factory.mktemp("scheduler")
    with install.scheduler(cluster, folder, api=flavour, crds={"install": flavour == "crd"}) as log:
        yield log


@pytest.fixture
def live(
    cluster: Cluster,
    server: BlockingClient,
    flavour: str,
    scheduler: Path,  # noqa: ARG001  # it runs
    request: pytest.FixtureRequest,
) -> Iterator[Live]:
    """Return an empty stage of its own namespace."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())[-50:].strip("-")
    stage = Live(cluster, server, flavour, name)
    yield stage
    stage.clear()
