"""An API server, our scheduler as a process, and a cluster simulator that keeps its objects on the API server."""

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
from tests.e2e.polling import growing_pauses

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, key_of
from cpg_api.scheduling.names import (
    EVENT_FAILED_SCHEDULING,
    EVENT_PREEMPTED,
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
from cpg_engine.testing.api_manifests import WITHOUT_AGE, batches_by_age, group_manifest, node_manifest, pod_manifest
from cpg_engine.testing.reported_decisions import unmet_decisions, unmet_domains
from cpg_engine.testing.scenario_expectations import Expected, unmet
from cpg_engine.testing.scenario_forms import BudgetForm
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

TIMEOUT_SECONDS = 20.0
NUMBERS = re.compile(r"\d+|s\b|\b(is|are|none)\b")
"""Words that may differ between two messages with the same cause."""
SECONDS_BETWEEN_WATCHES = 0.3
"""Time after which the scheduler has seen a change of a budget or group, since pods have a watch of their own."""
SECOND = 1.0
"""The precision of creation timestamps."""
SECONDS_OF_FIRST_BACKOFF = 1.5
"""Time after which units that have failed once are active as soon as a node may help them."""
SECONDS_WITHOUT_EVICTIONS = 0.5
"""Time in which pending units must evict no further pods."""
COMMON_RESOURCES = (PODS, NODES, EVENTS, POD_DISRUPTION_BUDGETS, PRIORITY_CLASSES)
RESOURCES = {
    "crd": {one.kind: one for one in (*COMMON_RESOURCES, CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS)},
    "native": {one.kind: one for one in (*COMMON_RESOURCES, NATIVE_POD_GROUPS_ALPHA, NATIVE_COMPOSITE_POD_GROUPS)},
}
VISIBLE = ("bound", "nodes", "together", "domain", "victims", "nominated", "because", "conditions")
DECIDED = ("finding", "status")
"""Expectations of a decision, from which conditions follow."""
PREEMPTED = re.compile(r"Preempted by (pod|podgroup|compositepodgroup) \S+: ")
Plain = dict[str, Any]


class NominationWatcher:
    """Watches the pods of a namespace in a thread, and keeps nominations, which a bind removes."""

    def __init__(self, cluster: Cluster, namespace: str, version: str) -> None:
        """Start a watch from this resource version."""
        self.nominated: dict[str, str] = {}
        """For each pod, the last node to which it was nominated before its bind."""
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

    def stop(self) -> None:
        """Stop the watch and its thread."""
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()


class LiveCluster(ClusterSimulator):
    """A simulator that keeps its objects on an API server, where the scheduler binds and evicts pods."""

    def __init__(self, cluster: Cluster, client: BlockingClient, flavour: str, namespace: str) -> None:
        """Create the namespace."""
        super().__init__(SearchOptions())
        self._cluster = cluster
        self.client = client
        self._flavour = flavour
        self.namespace = namespace
        self.scheduler_name = SCHEDULER_NAME
        """The scheduler of the pods that are created."""
        self._classes: set[str] = set()
        self._batch: list[Plain] = []
        self._pending_batch: list[Plain] = []
        self._allowed_disruptions: dict[str, int] = {}
        self._preempted: set[str] = set()
        made = client.create(NAMESPACES.path(), {"metadata": {"name": namespace}})
        self._watcher = NominationWatcher(cluster, namespace, made["metadata"]["resourceVersion"])

    def path(self, kind: str, name: str | None = None, subresource: str | None = None) -> str:
        """Return the path of an object in this flavour, or of all objects of a kind."""
        resource = RESOURCES[self._flavour][kind]
        return resource.path(self.namespace if resource.namespaced else None, name, subresource)

    def put_node(self, node: Node) -> None:
        """Create a node, or change its labels, its spec and what it can allocate."""
        name, plain = node.metadata.name, node_manifest(node)
        is_new = name not in self.nodes
        self.nodes[name] = node
        if is_new:
            self._create(plain)
            return
        self.flush()
        changed = {"metadata": {"labels": plain["metadata"].get("labels", {})}, "spec": plain.get("spec", {})}
        self.client.merge(self.path("Node", name), changed)
        self.client.merge(self.path("Node", name, STATUS), {"status": plain["status"]})

    def put_group(self, group: Group) -> None:
        """Create a group, or change its scheduling policy."""
        is_new = key_of(group) not in self.groups
        self.groups[key_of(group)] = group
        plain = group_manifest(group, native=self._flavour == "native")
        if not is_new:
            self.flush()
            changed = {"spec": {"schedulingPolicy": plain["spec"]["schedulingPolicy"]}}
            self.client.merge(self.path(group.kind, group.metadata.name), changed)
            return
        self._set_priority_class(plain["spec"], group.spec.priority)
        if self._flavour == "crd" and group.spec.priority == 0:
            plain["spec"]["priority"] = 0  # an API server sets it in the native flavour, the operator in this one
        self._create(plain)

    def put_pod(self, pod: Pod) -> None:
        """Create a pod, or change its scheduling gates and its phase."""
        name = pod.metadata.name
        before, self.pods[name] = self.pods.get(name), pod
        if before is not None:
            self.flush()
            if pod.spec.scheduling_gates != before.spec.scheduling_gates:
                gates = msgspec.to_builtins(pod.spec.scheduling_gates) or None
                self.client.merge(self.path("Pod", name), {"spec": {"schedulingGates": gates}})
            if pod.status.phase != before.status.phase:
                self._set_phase(name, pod.status.phase)
            return
        plain = pod_manifest(pod, native=self._flavour == "native")
        self._set_priority_class(plain["spec"], pod.spec.priority)
        if pod.spec.scheduler_name == SCHEDULER_NAME:
            plain["spec"]["schedulerName"] = self.scheduler_name
        self._create(plain)

    def _set_phase(self, name: str, phase: str) -> None:
        self.client.merge(self.path("Pod", name, STATUS), {"status": {"phase": phase}})

    def put_budget(self, name: str, budget: BudgetForm) -> None:
        """Create a budget; the test sets its status, because no disruption controller runs."""
        self.budgets[name] = budget
        spec = {"selector": {"matchLabels": budget.labels}, "minAvailable": 0}
        self._create({"kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec})
        if budget.allowed:
            self._allowed_disruptions[name] = budget.allowed

    def delete(self, name: str) -> bool:
        """Delete the node, pod and groups of that name; return whether there was one."""
        self.flush()
        found = False
        if name in self.nodes:
            del self.nodes[name]
            self.client.delete(self.path("Node", name))
            found = True
        if name in self.pods:
            del self.pods[name]
            self.client.delete(self.path("Pod", name), grace=0)
            found = True
        for key in [key for key in self.groups if key.name == name]:
            del self.groups[key]
            self.client.delete(self.path(key.kind, name))
            time.sleep(SECONDS_BETWEEN_WATCHES)
            found = True
        return found

    def await_expected(self, expected: Expected, *, decisions: bool = False) -> list[str]:
        """Return the expectations that are still unmet when the time is up, otherwise nothing.

        Beside the expectations, each pending pod needs a condition, each condition of a group must have the current
        generation, and each new cause of a failure and each eviction needs exactly one event. With ``decisions``,
        conditions are also compared with expected findings and statuses.
        """
        self.flush()
        visible = {name: getattr(expected, name) for name in (*VISIBLE, *(DECIDED if decisions else ()))}
        deadline, pauses = time.monotonic() + TIMEOUT_SECONDS, growing_pauses()
        while problems := self._problems(Expected(**visible)):
            if time.monotonic() > deadline:
                break
            time.sleep(next(pauses))
        if not problems and expected.victims is not None and self._has_pending_pods():
            time.sleep(SECONDS_WITHOUT_EVICTIONS)
            problems = self._problems(Expected(**visible))
        self._preempted |= self.evicted.keys()
        self.evicted.clear()
        self._watcher.nominated.clear()
        return problems

    def _problems(self, expected: Expected) -> list[str]:
        outdated = self._refresh()
        self.nominated = set(self._watcher.nominated)
        evictions = self._eviction_event_problems() if self.evicted or expected.victims is not None else []
        shown = replace(expected, **{name: {} for name in (*DECIDED, "domain")})
        decided = [*unmet_domains(expected, self), *unmet_decisions(expected, self)]
        problems = [*unmet(shown, self), *decided, *outdated, *evictions]
        return problems or (self._failure_event_problems() if expected.conditions else [])

    def _has_pending_pods(self) -> bool:
        """Return whether there are pods that may still preempt."""
        return any(not pod.spec.node_name for pod in self.pods.values())

    def clean_up(self) -> None:
        """Delete all objects of the test."""
        self._watcher.stop()
        self.client.delete(NAMESPACES.path(name=self.namespace))
        for pod in self._list("Pod"):
            if pod["metadata"].get("finalizers"):  # left by a failed test; other tests use the same nodes
                self.client.merge(self.path("Pod", pod["metadata"]["name"]), {"metadata": {"finalizers": None}})
        for kind in ("Pod", "PodGroup", "CompositePodGroup"):
            self.client.delete(self.path(kind), grace=0)
        if self.nodes:
            self.client.delete(self.path("Node"))

    def _refresh(self) -> list[str]:
        """Read pods and groups; return missing conditions of pending pods and outdated conditions of groups."""
        pods = {pod["metadata"]["name"]: pod for pod in self._list("Pod")}
        groups = ("PodGroup", "CompositePodGroup") if self.groups else ()
        found = [("Pod", pod) for pod in pods.values()] + [(kind, item) for kind in groups for item in self._list(kind)]
        gone = self.pods.keys() - pods.keys()
        for name in gone:
            self.evicted[name] = ""
            del self.pods[name]
        for name, pod in self.pods.items():
            self.pods[name] = replace(pod, spec=replace(pod.spec, node_name=pods[name]["spec"].get("nodeName", "")))
        self.reported = shown = dict[str, str]()
        return [problem for kind, item in found if (problem := self._record_condition(kind, item, shown))]

    def _record_condition(self, kind: str, item: Plain, shown: dict[str, str]) -> str:
        """Record the scheduling condition of an object; return why it is missing or outdated, or nothing."""
        meta = item["metadata"]
        wanted = POD_SCHEDULED if kind == "Pod" else f"{kind}InitiallyScheduled"
        conditions = item.get("status", {}).get("conditions", ())
        found: Plain = next((one for one in conditions if one["type"] == wanted), {})
        status = found.get("status", "Unknown")
        message = found.get("message", "").replace(f"{self.namespace}/", "default/")
        shown[meta["name"]] = f"{status} {found.get('reason', '')} {message}".rstrip()
        if kind == "Pod":
            is_pending = not item["spec"].get("nodeName") and item["status"].get("phase") == "Pending"
            is_ours = item["spec"].get("schedulerName") == self.scheduler_name
            return f"{meta['name']} has no condition" if is_pending and is_ours and status != "False" else ""
        observed = found.get("observedGeneration", 0)
        is_outdated = status != "Unknown" and observed != meta.get("generation", 0)  # built-in kinds have none
        return f"the condition of {meta['name']} is of generation {observed}" if is_outdated else ""

    def _failure_event_problems(self) -> list[str]:
        """Return failed objects without an event, and those with several events for one cause."""
        counts = Counter((name, _cause(note)) for name, note, _ in self.events(EVENT_FAILED_SCHEDULING))
        failed = {name for name, text in (self.reported or {}).items() if text.startswith("False")}
        without_event = sorted(failed - {name for name, _ in counts})
        return [
            *(f"{name} has no event" for name in without_event),
            *(f"{name} has {count} events: {note}" for (name, note), count in counts.items() if count > 1),
        ]

    def _eviction_event_problems(self) -> list[str]:
        """Record the reason of each eviction; return pods that do not have exactly one event about theirs."""
        notes: dict[str, list[str]] = {name: [] for name in self.evicted}
        for name, note, _ in self.events(EVENT_PREEMPTED):
            if name not in self._preempted:
                notes.setdefault(name, []).append(note)
        self.evicted.update((name, notes[name][0]) for name in self.evicted if notes[name])
        return [
            f"{name} is evicted: {name in self.evicted}, events about that: {found}"
            for name, found in notes.items()
            if name not in self.evicted or len(found) != 1 or not PREEMPTED.match(found[0])
        ]

    def events(self, reason: str) -> Iterator[tuple[str, str, int]]:
        """Yield the object's name, the note and the count of each event with a reason."""
        for one in self._list("Event"):
            if one["reason"] == reason:
                note = one["note"].replace(f"{self.namespace}/", "default/")
                yield one["regarding"]["name"], note, (one.get("series") or {}).get("count", 1)

    def _set_priority_class(self, spec: Plain, priority: int | None) -> None:
        """Replace a priority and a preemption policy by a priority class, as the API server requires."""
        spec.pop("priority", None)
        if not priority:
            return
        policy = spec.get("preemptionPolicy") or "PreemptLowerPriority"
        name = f"p{priority}-{policy.lower()}"
        spec["priorityClassName"] = name
        if name not in self._classes:
            self._classes.add(name)
            body = {"metadata": {"name": name}, "value": priority, "preemptionPolicy": policy}
            if self.client.find(self.path("PriorityClass", name)) is None:
                self.client.create(self.path("PriorityClass"), body)

    def _create(self, plain: Plain) -> None:
        if plain["kind"] != "Node":
            plain["metadata"]["namespace"] = self.namespace
        is_pending = plain["kind"] == "Pod" and not plain["spec"].get("nodeName")
        (self._pending_batch if is_pending else self._batch).append(plain)

    def flush(self) -> None:
        """Create the collected objects; pending pods come last, because their units need the other objects."""
        if self._allowed_disruptions:
            self._send(self._batch)
            for name, allowed in self._allowed_disruptions.items():
                counts = dict.fromkeys(("currentHealthy", "desiredHealthy", "expectedPods"), 0)
                status = {"status": {**counts, "disruptionsAllowed": allowed}}
                self.client.merge(self.path("PodDisruptionBudget", name, STATUS), status)
            self._allowed_disruptions.clear()
            time.sleep(SECONDS_BETWEEN_WATCHES)
            self._batch.clear()
        self._send_by_age([*self._batch, *self._pending_batch])
        self._batch.clear()
        self._pending_batch.clear()

    def _send_by_age(self, objects: list[Plain]) -> None:
        """Create objects, as old as they say if that is not their order.

        Timestamps have whole seconds. Nodes come last, after backoffs have ended, so nothing is placed by arrival.
        """
        batches = batches_by_age(objects)
        for same_age in batches:
            time.sleep(SECOND - time.time() % SECOND)
            self._send(same_age)
        if batches:
            time.sleep(SECONDS_OF_FIRST_BACKOFF)
        self._send([one for one in objects if not batches or one["kind"] in WITHOUT_AGE])

    def _send(self, objects: list[Plain]) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        for plain in objects:
            while not self._is_created(plain):
                assert time.monotonic() < deadline, plain
                time.sleep(0.02)

    def _is_created(self, plain: Plain) -> bool:
        """Create an object; return False while the API server's cache does not have its priority class yet."""
        try:
            self.client.create(self.path(plain["kind"]), plain)
        except ApiError as error:
            if "no PriorityClass with name" not in error.message:
                raise
            return False
        if plain["kind"] == "Pod" and (pod := self.pods[plain["metadata"]["name"]]).is_terminal:
            self._set_phase(pod.metadata.name, pod.status.phase)
        return True

    def _list(self, kind: str) -> list[Plain]:
        found: list[Plain] = self.client.get(self.path(kind))["items"]
        return found


def _cause(note: str) -> str:
    """Return the problem of a note without numbers, with the result of preemption: a new plan is a new cause."""
    problem, _, preemption = note.partition("preemption: ")
    return NUMBERS.sub("", problem) + preemption.partition(" (")[0]


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
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    """Return a client of the cluster's API server."""
    with BlockingClient(cluster.access) as client:
        yield client


@pytest.fixture(scope="package")
def scheduler(
    cluster: Cluster, flavour: str, install: "Installer", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Run our scheduler with the chart's settings; return its log."""
    folder = tmp_path_factory.mktemp("scheduler")
    with install.scheduler(cluster, folder, api=flavour, crds={"install": flavour == "crd"}) as log:
        yield log


@pytest.fixture
def live(
    cluster: Cluster,
    client: BlockingClient,
    flavour: str,
    scheduler: Path,  # noqa: ARG001  # started by its fixture
    request: pytest.FixtureRequest,
) -> Iterator[LiveCluster]:
    """Return a live cluster with its own namespace and without nodes."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())[-50:].strip("-")
    created = LiveCluster(cluster, client, flavour, name)
    yield created
    created.clean_up()
