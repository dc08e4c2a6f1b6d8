"""A testbed for failures of the scheduler: an API server with nodes, trees of gangs, and scheduler replicas."""

import asyncio
import contextlib
import itertools
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import result_files
import yaml
from tests.e2e.api_proxy import ApiProxy, open_session
from tests.e2e.polling import growing_pauses

from cpg_api.scheduling.names import POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError
from cpg_client.listing import list_all
from cpg_client.resources import (
    CPG_COMPOSITE_POD_GROUPS,
    CPG_POD_GROUPS,
    EVENTS,
    LEASES,
    NAMESPACES,
    NATIVE_COMPOSITE_POD_GROUPS,
    NATIVE_POD_GROUPS_ALPHA,
    NODES,
    PODS,
    Resource,
)
from cpg_client.watching import WatchEvent, watch
from cpg_lab.charts import ChartRelease
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.replicas import SHORT_LEASE, Replica
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

BLOCK, RACK = "topology.cpg.dev/block", "topology.cpg.dev/rack"
CRASHES = int(os.environ.get("CRASHES", "3"))
"""Kills of the leader in each flavour; with those of ``make crash``, the cluster is exactly full at the end."""

RESULTS = os.environ.get("CRASH_RESULTS", "")
"""The folder for a file with the results; empty if the results are not kept."""

TREES_PER_BLOCK = 4
Plain = dict[str, Any]
CreateRequest = tuple[str, Plain]


def nodes_for(trees: int) -> NodePool:
    """Return nodes for this number of trees with 16 CPUs each: blocks of four trees, at least two."""
    return NodePool.parse(f"{max(2, -(-trees // TREES_PER_BLOCK))} blocks x 2 racks x 8 nodes, cpu=4")


def _group(resource: Resource, name: str, policy: Plain, parent: str, key: str, **more: object) -> Plain:
    spec: Plain = {
        "schedulingPolicy": policy,
        "workloadRef": {"workloadName": "absent", "templateName": "any"},
        **({"parentCompositePodGroupName": parent} if parent else {}),
        **({"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}),
        **more,
    }
    kind = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**kind, "metadata": {"name": name}, "spec": spec}


class Testbed:
    """One namespace of a cluster, and the replicas that a test starts, with the chart's account and settings.

    The groups have the flavour that the cluster serves.
    """

    def __init__(
        self, cluster: Cluster, connection: Connection, *, namespace: str, release: ChartRelease, folder: Path
    ) -> None:
        self.cluster = cluster
        self.connection = connection
        self.namespace = namespace
        self.replicas: list[Replica] = []
        self.folder = folder
        self.kubeconfig = release.kubeconfig("scheduler", folder)
        self.is_native = cluster.spec.gates == "native"
        self.pod_groups = NATIVE_POD_GROUPS_ALPHA if self.is_native else CPG_POD_GROUPS
        self.composites = NATIVE_COMPOSITE_POD_GROUPS if self.is_native else CPG_COMPOSITE_POD_GROUPS
        (files,) = release.of_kind("ConfigMap")
        self.settings: Plain = yaml.safe_load(files["data"]["settings.yaml"])
        del self.settings["listen"]
        self._server = cluster.processes["apiserver"].pid
        self.lease = LEASES.path(self.settings["leaseNamespace"], self.settings["leaseName"])
        self._numbers = itertools.count()

    # Bodies of objects.
    def pod(self, name: str, *, group: str = "", cpu: str = "1", **spec: object) -> CreateRequest:
        """Return a pod."""
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        labels = {POD_GROUP_LABEL: group} if group and not self.is_native else {}
        plain: Plain = {"schedulerName": SCHEDULER_NAME, "containers": [container], **spec}
        if group and self.is_native:
            plain["schedulingGroup"] = {"podGroupName": group}
        return PODS.path(self.namespace), {"metadata": {"name": name, "labels": labels}, "spec": plain}

    def group(self, name: str, size: int, *, parent: str = "", key: str = "", **more: object) -> CreateRequest:
        """Return a PodGroup that is a gang."""
        policy = {"gang": {"minCount": size}}
        return self.pod_groups.path(self.namespace), _group(self.pod_groups, name, policy, parent, key, **more)

    def composite(self, name: str, size: int, *, parent: str = "", key: str = "") -> CreateRequest:
        """Return a CompositePodGroup that is a gang."""
        policy = {"gang": {"minGroupCount": size}}
        return self.composites.path(self.namespace), _group(self.composites, name, policy, parent, key)

    def tree(self, name: str, *, leaves: int = 2, size: int = 8) -> list[CreateRequest]:
        """Return a tree that requires one block, with leaves that require one rack each; the pods come last."""
        names = [f"{name}-{number}" for number in range(leaves)]
        return [
            self.composite(name, leaves, key=BLOCK),
            *(self.group(leaf, size, parent=name, key=RACK) for leaf in names),
            *(self.pod(f"{leaf}-{number}", group=leaf) for leaf in names for number in range(size)),
        ]

    # Actions.
    def start_replica(
        self, *arguments: str, program: str = "", proxy: ApiProxy | None = None, **settings: object
    ) -> Replica:
        """Start a replica, by default with a short lease and without a proxy."""
        chosen = {**self.settings, "leaderElection": SHORT_LEASE, **settings}
        name = f"replica-{next(self._numbers)}"
        access = proxy.write_kubeconfig(self.folder / f"{name}.kubeconfig") if proxy is not None else self.kubeconfig
        found = Replica(access, self.folder, name, *arguments, settings=chosen, program=program)
        self.replicas.append(found)
        return found

    async def create(self, *objects: CreateRequest) -> None:
        """Create objects in their order, one kind after the other; fail if one cannot be created."""
        for _, batch in itertools.groupby(objects, key=lambda item: item[0]):
            outcome = await create_all(self.connection, batch)
            assert not outcome.failures, outcome.failures[0].error

    async def try_to_create(self, *objects: CreateRequest) -> None:
        """Create the objects that the API server accepts."""
        await create_all(self.connection, objects)

    async def delete(self, resource: Resource, name: str) -> None:
        """Delete an object without a grace period."""
        namespace = self.namespace if resource.namespaced else None
        await self.connection.delete(resource.path(namespace, name), {"gracePeriodSeconds": 0})

    async def list_objects(self, resource: Resource, *, everywhere: bool = False) -> list[Plain]:
        """Return all objects of a kind."""
        path = resource.path(self.namespace if resource.namespaced and not everywhere else None)
        return [msgspec.json.decode(item) for item in (await list_all(self.connection, path)).items]

    async def pod_nodes(self) -> dict[str, str]:
        """Return the node of each pod; empty for a pending pod."""
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in await self.list_objects(PODS)}

    async def bound_count(self) -> int:
        """Return the number of bound pods."""
        return sum(map(bool, (await self.pod_nodes()).values()))

    async def wait_until(self, holds: Callable[[], Any], seconds: float = 20.0, what: str = "") -> None:
        """Wait until a condition is true; ``holds`` may be a coroutine function."""
        deadline, pauses = time.monotonic() + seconds, growing_pauses()
        while True:
            found = holds()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return
            assert time.monotonic() < deadline, f"no {what or 'success'} within {seconds:g} s:\n" + "\n".join(
                replica.process.tail(5) for replica in self.replicas
            )
            await asyncio.sleep(next(pauses))

    @contextlib.asynccontextmanager
    async def watch_binds(self) -> AsyncIterator[AsyncIterator[str]]:
        """Return the names of the pods that are bound from now on, as the watch reports them."""
        path = PODS.path(self.namespace)
        before = await list_all(self.connection, path)
        seen = {
            one["metadata"]["name"] for one in map(msgspec.json.decode, before.items) if one["spec"].get("nodeName")
        }

        async def bound(events: AsyncIterator[WatchEvent]) -> AsyncIterator[str]:
            async for event in events:
                if event.type != "MODIFIED":  # bookmarks have no name
                    continue
                one = msgspec.json.decode(event.object)
                name = one["metadata"]["name"]
                if one["spec"].get("nodeName") and name not in seen:
                    seen.add(name)
                    yield name

        async with contextlib.aclosing(watch(self.connection, path, before.resource_version)) as events:
            yield bound(events)

    async def wait_until_bound(self, number: int, seconds: float = 20.0) -> None:
        """Wait until at least this number of pods are bound."""

        async def are_bound() -> bool:
            return await self.bound_count() >= number

        await self.wait_until(are_bound, seconds, f"{number} bound pods")

    async def wait_for_log(self, replica: Replica, event: str, seconds: float = 20.0) -> Plain:
        """Wait for the first line of an event in the log of a replica, and return it."""
        await self.wait_until(lambda: replica.log_lines(event), seconds, event)
        return replica.log_lines(event)[0]

    async def condition_messages(self, resource: Resource) -> dict[str, tuple[str, str]]:
        """Return status and message of the scheduling condition of each object that has one."""
        found = {}
        for one in await self.list_objects(resource):
            kinds = [c for c in one.get("status", {}).get("conditions", ()) if "Scheduled" in c["type"]]
            if kinds:
                found[one["metadata"]["name"]] = kinds[0]["status"], kinds[0].get("message", "")
        return found

    async def wait_for_pod_conditions(self, seconds: float = 10.0) -> None:
        """Wait until every pending pod has the condition PodScheduled."""

        async def all_have_conditions() -> bool:
            pending = {name for name, node in (await self.pod_nodes()).items() if not node}
            return pending <= (await self.condition_messages(PODS)).keys()

        await self.wait_until(all_have_conditions, seconds, "condition on every pending pod")

    async def wait_for_message(self, name: str, text: str, seconds: float = 20.0) -> None:
        """Wait until the scheduling condition of a pod or group has this text in its message."""

        async def has_text() -> bool:
            messages: dict[str, tuple[str, str]] = {}
            for kind in (PODS, self.pod_groups, self.composites):
                with contextlib.suppress(ApiError):  # some clusters do not serve our kinds
                    messages |= await self.condition_messages(kind)
            return text in messages.get(name, ("", ""))[1]

        await self.wait_until(has_text, seconds, f"{text!r} in the condition of {name}")

    async def event_counts(self, reason: str) -> Counter[str]:
        """Return the number of events with a reason for each object."""
        found = await self.list_objects(EVENTS)
        return Counter(one["regarding"]["name"] for one in found if one["reason"] == reason)

    async def overcommitted_cpus(self) -> dict[str, int]:
        """Return the CPUs by which nodes are over-committed, with the pods of all namespaces."""
        used: Counter[str] = Counter()
        for one in await self.list_objects(PODS, everywhere=True):
            if one["status"].get("phase") not in {"Succeeded", "Failed"}:
                used[one["spec"].get("nodeName", "")] += int(
                    one["spec"]["containers"][0]["resources"]["requests"]["cpu"]
                )
        nodes = {
            one["metadata"]["name"]: int(one["status"]["allocatable"]["cpu"]) for one in await self.list_objects(NODES)
        }
        return {name: used[name] - cpu for name, cpu in nodes.items() if used[name] > cpu}

    async def violations(self) -> list[str]:
        """Return pending pods, over-committed nodes, trees outside one domain, and conditions that are not True."""
        labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in await self.list_objects(NODES)}
        found = [f"{name} is over-committed by {cpu}" for name, cpu in (await self.overcommitted_cpus()).items()]
        racks: dict[str, set[str]] = {}
        blocks: dict[str, set[str]] = {}
        for name, node in (await self.pod_nodes()).items():
            leaf = name.rpartition("-")[0]
            if not node:
                found.append(f"{name} has no node")
                continue
            if name.count("-") < 2:
                continue  # a pod without a tree
            racks.setdefault(leaf, set()).add(labels[node][RACK])
            blocks.setdefault(leaf.rpartition("-")[0], set()).add(labels[node][BLOCK])
        found += [f"{leaf} is in {sorted(seen)}" for leaf, seen in racks.items() if len(seen) != 1]
        found += [f"{root} is in {sorted(seen)}" for root, seen in blocks.items() if len(seen) != 1]
        for resource in (self.pod_groups, self.composites):
            shown = await self.condition_messages(resource)
            found += [f"{name} is {status}: {why}" for name, (status, why) in shown.items() if status != "True"]
        return found

    async def wait_until_complete(self, seconds: float = 20.0) -> None:
        """Wait until every pod is bound inside the domains of its tree, and every group reports success."""
        deadline, pauses = time.monotonic() + seconds, growing_pauses()
        while violations := await self.violations():
            assert time.monotonic() < deadline, violations
            await asyncio.sleep(next(pauses))

    async def compact_etcd(self) -> None:
        """Drop all versions except the latest from etcd, so that no watch can resume from an earlier one."""
        version = (await list_all(self.connection, NAMESPACES.path())).resource_version
        async with Connection(Endpoint(server=self.cluster._control_plane.url("etcd"))) as etcd:
            await etcd.post("/v3/kv/compaction", {"revision": version, "physical": True})

    async def clean_up(self) -> None:
        """Kill all replicas, and delete the lease, the pods and the groups."""
        for replica in self.replicas:
            if replica.process.is_running:
                replica.resume()
                replica.process.kill()
        forbidden = [one.process.name for one in self.replicas if "forbidden: User" in one.process.output()]
        # A starting API server answers 403 to all except administrators, so a restarted one shows nothing.
        if self._server == self.cluster.processes["apiserver"].pid:
            assert forbidden == []
        with contextlib.suppress(ApiError):  # absent if no replica needed it
            await self.connection.delete(self.lease)
        for resource in (PODS, self.pod_groups, self.composites):
            with contextlib.suppress(ApiError):  # some clusters do not serve our kinds
                await self.connection.delete(resource.path(self.namespace), {"gracePeriodSeconds": 0})


@pytest.fixture(scope="session")
def record() -> Iterator[Plain]:
    """Return the results of the run; a test adds its part when it begins, and the outcome when it ends."""
    measured, parts = result_files.measured_code(), dict[str, Plain]()
    yield parts
    if RESULTS and parts:
        result_files.write_result(
            "crash", {"load": result_files.load_average(), "parts": parts}, measured=measured, folder=Path(RESULTS)
        )


@pytest.fixture(scope="package")
def crash_cluster() -> Iterator[Cluster]:
    """Run a cluster with nodes for the trees of all kills."""
    with Cluster(ClusterSpec(nodes=(nodes_for(CRASHES),))) as cluster:
        yield cluster


@pytest.fixture
def release(crash_cluster: Cluster, install: "Installer") -> ChartRelease:
    """Return the release of the chart in the cluster, with the kinds of its flavour."""
    is_native = crash_cluster.spec.gates == "native"
    api, kinds = ("native", {"install": False}) if is_native else ("crd", {"install": True})
    return install(crash_cluster, {"api": api, "crds": kinds, "operator": {"enabled": False}})


@pytest.fixture
async def testbed(
    crash_cluster: Cluster, release: ChartRelease, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Testbed]:
    """Return a testbed with its own namespace and without replicas."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name.lower())[:50].strip("-")
    async with Connection.from_kubeconfig(crash_cluster.kubeconfig) as connection:
        await connection.post(NAMESPACES.path(), {"metadata": {"name": name}})
        made = Testbed(crash_cluster, connection, namespace=name, release=release, folder=tmp_path)
        yield made
        await made.clean_up()


@pytest.fixture
async def api_proxy(testbed: Testbed) -> AsyncIterator[ApiProxy]:
    """Return a proxy to the API server with the rights of the scheduler; a test gives its kubeconfig to replicas."""
    token = testbed.cluster.token_for("kube-cpg-scheduler", "kube-cpg")
    async with open_session() as session:
        proxy = ApiProxy(testbed.cluster.url, token, session)
        await proxy.open()
        yield proxy
        await proxy.close()
