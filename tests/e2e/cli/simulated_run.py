"""One seeded case on a real API server: simulate predicts it, then it is submitted and the scheduler runs."""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from click.testing import CliRunner
from tests.cli.analysis.simulated_cases import SimulatedCase
from tests.e2e.owners.model import Slot, owner_path
from tests.e2e.owners.simulated_controllers import Kept, Made, SimulatedControllers

from cpg_api.core.pod import Pod
from cpg_api.decoding import decode
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_cli.root import root
from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection

Plain = dict[str, Any]
Nodes = Counter[tuple[str, str]]
"""The pods of each group on each node; without a node, those that wait."""
GROUPS = "/apis/scheduling.cpg.dev/v1alpha3"
PATHS = {
    "Pod": "/api/v1/namespaces/{}/pods",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "Workload": f"{GROUPS}/namespaces/{{}}/workloads",
    "PodGroup": f"{GROUPS}/namespaces/{{}}/podgroups",
    "CompositePodGroup": f"{GROUPS}/namespaces/{{}}/compositepodgroups",
}
SECONDS_BETWEEN_POLLS = 0.2
QUIET_SECONDS = 0.8
"""For this time nothing changes before further pods are created, or the case ends."""
RULES = Integrations([SCHEDULER_NAME], DEFAULT_INTEGRATIONS)
REPLICA_SET = re.compile(r"^replicaset\.(.+)-[a-z0-9]+\.pods$")
"""The group of a ReplicaSet: only the Deployment controller knows the hash."""


class DifferingRunError(AssertionError):
    """What has happened is not what was predicted."""


class ControllersOfRun(SimulatedControllers):
    """The simulated controllers, with the init container that KubeRay gives its workers."""

    async def _fill(self, kept: Kept, slot: Slot) -> None:
        whole = self._template
        if slot.labels.get("ray.io/node-type") == "worker":
            resources = {"requests": {"cpu": "200m", "memory": "256Mi"}}
            waits = {"name": "wait-gcs-ready", "image": "none", "resources": resources}
            self._template = {"spec": {**whole["spec"], "initContainers": [waits]}}
        try:
            await super()._fill(kept, slot)
        finally:
            self._template = whole


class SimulatedRun:
    """A case, what is predicted for it, and what becomes of it; ``problem`` says what differs."""

    def __init__(self, connection: Connection, kubeconfig: Path, case: SimulatedCase, patience: float) -> None:
        """Prepare nothing yet."""
        self.prediction: Plain = {}
        self.problem = ""
        self._connection = connection
        self._kubeconfig = kubeconfig
        self.case = case
        self._patience = patience
        self.is_ordered = True
        """Whether groups were created in the order of their names or at the same time, as the prediction assumes."""
        self._controllers: list[SimulatedControllers] = []
        self._bound: set[str] = set()

    def predict(self, folder: Path) -> None:
        """Ask the command what would happen in the live cluster."""
        self.prediction = self._simulate(folder)

    async def submit(self) -> None:
        """Submit the case, and wait until groups and pods are there."""
        await asyncio.sleep(1.0 - time.time() % 1.0)  # so that the groups of a tree are created in the same second
        await self._submit()
        await self._until(self._missing)
        self.is_ordered = await self._has_order()

    async def clean_up(self) -> None:
        """Delete the case, pods at once."""
        case = self.case
        for owner, _ in case.owners:
            await self._connection.delete(owner_path(owner, case.namespace), {"propagationPolicy": "Background"})
        for kind in ("Deployment", "ReplicaSet", "Workload", "PodGroup", "CompositePodGroup"):
            await self._connection.delete(self._path(kind), {"propagationPolicy": "Background"})
        while await self._pods():
            await self._connection.delete(self._path("Pod"), {"gracePeriodSeconds": 0})
            await asyncio.sleep(SECONDS_BETWEEN_POLLS)
        for node in case.nodes:
            await self._connection.delete(f"/api/v1/nodes/{node['metadata']['name']}")

    def _path(self, kind: str) -> str:
        return PATHS[kind].format(self.case.namespace)

    async def prepare(self) -> None:
        """Create the cluster of the case."""
        case = self.case
        await self._connection.post("/api/v1/namespaces", {"metadata": {"name": case.namespace}})
        await self._create([("/api/v1/nodes", node) for node in case.nodes])
        for is_pod in (False, True):
            running = [one for one in case.running if (one["kind"] == "Pod") == is_pod]
            await self._create([(self._path(one["kind"]), one) for one in running])

    def _simulate(self, folder: Path) -> Plain:
        """Return what the command predicts for the live cluster."""
        file = folder / f"{self.case.namespace}.json"
        items = [one.plain for one in self.case.documents()]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        arguments = ["simulate", "-f", str(file), "-n", self.case.namespace, "-o", "json"]
        found = CliRunner().invoke(root, [*arguments, "--kubeconfig", str(self._kubeconfig)], catch_exceptions=False)
        answer: Plain = decode(found.stdout)
        return answer

    async def _submit(self) -> None:
        case = self.case
        await self._create([(self._path(one["kind"]), one) for one in case.submitted])
        for owner, template in case.owners:
            rng = Random(case.seed)  # noqa: S311  # a case can be repeated
            controllers = ControllersOfRun(self._connection, case.namespace, template, rng)
            await controllers.create(owner)
            await controllers.reconcile(self._is_bound)
            self._controllers.append(controllers)

    async def _create(self, objects: list[tuple[str, Plain]]) -> None:
        outcome = await create_all(self._connection, iter(objects), in_flight=8)
        assert not outcome.failures, outcome.failures

    def _is_bound(self, made: Made | None) -> bool:
        return made is not None and made.uid in self._bound

    async def _pods(self) -> list[Pod]:
        body = await self._connection.get(self._path("Pod"))
        pods = [decode(json.dumps(one), Pod) for one in decode(body)["items"]]
        self._bound = {pod.metadata.uid for pod in pods if pod.spec.node_name}
        return pods

    async def _groups(self) -> dict[str, str]:
        """Return when each group was created."""
        found = dict[str, str]()
        for kind in ("PodGroup", "CompositePodGroup"):
            metas = (one["metadata"] for one in decode(await self._connection.get(self._path(kind)))["items"])
            found |= {_normal(meta["name"]): meta["creationTimestamp"] for meta in metas}
        return found

    async def _has_order(self) -> bool:
        """Return whether the groups of each tree are created in the order of their names, or in the same second."""
        created = await self._groups()
        trees = [sorted(_normal(group["name"]) for group in tree["groups"]) for tree in self.prediction["trees"]]
        return all(names == sorted(names, key=lambda name: (created[name], name)) for names in trees)

    async def _missing(self) -> list[str]:
        """Return the groups and pods that are not there yet."""
        wanted = {_normal(group["name"]) for tree in self.prediction["trees"] for group in tree["groups"]}
        missing = sorted(wanted - (await self._groups()).keys())
        at_once = [
            one["spec"].get("replicas", 1) for one in self.case.submitted if one["kind"] in {"Pod", "Deployment"}
        ]
        slots = [slot for owner, _ in self.case.owners for slot in owner.slots() if not slot.after]
        running = sum(one["kind"] == "Pod" for one in self.case.running)
        pods, expected = len(await self._pods()), running + sum(at_once) + len(slots)
        return [*missing, *([f"{expected - pods} of {expected} pods"] if pods < expected else [])]

    async def settle(self) -> None:
        """Wait until the scheduler has done what was predicted, and does no more."""
        since, before = time.monotonic(), Nodes()

        async def differences() -> list[str]:
            nonlocal since, before
            pods = await self._pods()
            now = self._nodes_of(pods)
            if now != before:
                since, before = time.monotonic(), now
            if time.monotonic() - since < QUIET_SECONDS:
                return [*self._differences(pods), "not quiet yet"]
            for controllers in self._controllers:
                await controllers.reconcile(self._is_bound)
            return list(self._differences(pods))

        try:
            await self._until(differences)
        except DifferingRunError as error:
            self.problem = str(error)

    async def _until(self, problems: Any) -> None:  # noqa: ANN401 - a coroutine function
        deadline = time.monotonic() + self._patience
        while found := await problems():
            if time.monotonic() > deadline:
                raise DifferingRunError("; ".join(found))
            await asyncio.sleep(SECONDS_BETWEEN_POLLS)

    def _nodes_of(self, pods: list[Pod]) -> Nodes:
        running = {one["metadata"]["name"] for one in self.case.running}
        submitted = [RULES.with_group(pod) for pod in pods if pod.metadata.name not in running]
        return Nodes((_normal(membership(pod).group or "pods"), pod.spec.node_name) for pod in submitted)

    def _predicted(self) -> Nodes:
        found = Nodes()
        for tree in self.prediction["trees"]:
            for group in (one for one in tree["groups"] if one["kind"] == "PodGroup"):
                name = _normal(group["name"])
                found += Nodes({(name, node): count for node, count in group["nodes"].items()})
                found += Nodes({(name, ""): group["total"] - group["placed"]})
        return found + Nodes(("pods", pod["node"]) for pod in self.prediction["singlePods"])

    def _differences(self, pods: list[Pod]) -> Iterator[str]:
        """Yield what differs: the pods of groups by node, and victims."""
        victims = {name.partition("/")[2] for one in self.prediction["victims"] for name in one["pods"]}
        running = {one["metadata"]["name"] for one in self.case.running if one["kind"] == "Pod"}
        gone = running - {pod.metadata.name for pod in pods}
        if gone != victims:
            yield f"evicted {sorted(gone)}, predicted {sorted(victims)}"
        actual, predicted = self._nodes_of(pods), self._predicted()
        for place in sorted((actual - predicted) | (predicted - actual)):
            yield f"{place}: {actual[place]} pods, predicted {predicted[place]}"


def _normal(group: str) -> str:
    return REPLICA_SET.sub(r"replicaset.\1", group)
