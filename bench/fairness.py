"""What a hostile tenant costs the others. Run by hand.

Two clusters with equal nodes run side by side, each with a scheduler. In both, a quiet tenant creates small pods at a
steady rate, at the same time, so that other load of the machine affects both. In one of them there is also a hostile
tenant: its trees fit nowhere, are all different, and take long to decide. Fails if the p99 of the time from the
creation of a quiet pod to its bind is more than twice that in the other cluster.
"""

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import msgspec
from backlogs import FILLER_SCHEDULER, RACK, SMALL, URGENT, Body, Item
from gang_arrival import SPEC, await_idle, create, start_scheduler
from result_files import cpu_seconds, load_average, measured_code, write_result

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.connection import MERGE_PATCH, Connection
from cpg_client.listing import list_all
from cpg_client.resources import NAMESPACES, NATIVE_POD_GROUPS, PODS, PRIORITY_CLASSES
from cpg_client.watching import WatchHooks, watch
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import TOPOLOGY, NodePool
from cpg_lab.replicas import Replica

NODES = NodePool.parse("3 blocks x 10 racks x 10 nodes, cpu=64, memory=64Gi, pods=110")
ALONE, BESIDE, QUIET = "alone", "beside", "quiet"
MEMBERS = 4
"""The pods of a hostile tree, which take about 0.1 s of CPU."""
SECONDS_BETWEEN_CHANGES, SECONDS_BETWEEN_REPLACEMENTS = 0.1, 0.5
MAX_RATIO = 2.0
TIMEOUT_SECONDS = 600.0
PATIENCE_SECONDS = 60.0
"""For how long the last binds are waited for; a pod that is not bound by then counts with its age."""


class Attack(msgspec.Struct, frozen=True):
    """What the hostile tenant does: how many trees it has, in how many namespaces, and its priority class."""

    roots: int
    namespaces: int = 1
    priority: str | None = None


class Site(msgspec.Struct):
    """A cluster with a scheduler, and the times from creation to bind of its quiet pods."""

    connection: Connection
    replica: Replica
    created: dict[str, float] = {}
    seconds: list[float] = []


class NamedPod(msgspec.Struct):
    """The name of a pod."""

    metadata: dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the results; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--roots", type=int, default=2000, help="trees of the hostile tenant (default: 2,000)")
    parser.add_argument("--seconds", type=float, default=120.0, help="seconds of each case (default: 120)")
    parser.add_argument("--rate", type=float, default=5.0, help="quiet pods per second (default: 5)")
    parser.add_argument("cases", nargs="*", help="which cases: tree, roots, higher, namespaces (default: all)")
    given = parser.parse_args(arguments)
    attacks = {
        "tree": Attack(1),
        "roots": Attack(given.roots),
        "higher": Attack(given.roots, priority=URGENT),
        "namespaces": Attack(given.roots, namespaces=10),
    }
    measured, failed = measured_code(), False
    for name in given.cases or attacks:
        with contextlib.ExitStack() as stack:
            clusters = {where: stack.enter_context(Cluster(SPEC)) for where in (ALONE, BESIDE)}
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            figures = asyncio.run(measure(clusters, folder, attacks[name], given.seconds, given.rate))
        failed |= show(name, figures)
        write_result(f"fairness-{name}", {"roots": attacks[name].roots, **figures}, measured=measured)
    return int(failed)


def show(name: str, figures: dict[str, Any]) -> bool:
    """Print the figures of a case; return whether the p99 is too high."""
    alone, beside = figures[ALONE], figures[BESIDE]
    ratio = beside["p99"] / alone["p99"]
    print(
        f"{name}: p50 {alone['p50'] * 1000:.0f} and {beside['p50'] * 1000:.0f} ms,"
        f" p99 {alone['p99'] * 1000:.0f} and {beside['p99'] * 1000:.0f} ms ({ratio:.2f} times),"
        f" max {alone['max'] * 1000:.0f} and {beside['max'] * 1000:.0f} ms, {alone['pods']} and {beside['pods']} pods;"
        f" hostile attempts took {figures['hostile_share']:.1%} of the time ({figures['hostile_attempts']});"
        f" CPU {alone['cpu_seconds']:.1f} and {beside['cpu_seconds']:.1f} s, load {figures['load']:g}",
        flush=True,
    )
    return bool(ratio > MAX_RATIO)


async def measure(
    clusters: dict[str, Cluster], folder: Path, attack: Attack, seconds: float, rate: float
) -> dict[str, Any]:
    """Let the quiet tenant create pods in both clusters, and the hostile one act in one of them."""
    async with contextlib.AsyncExitStack() as stack:
        sites = {}
        for where, cluster in clusters.items():
            await asyncio.to_thread(cluster.add_nodes, NODES)
            (own := folder / where).mkdir()
            connection = await stack.enter_async_context(Connection.from_kubeconfig(cluster.kubeconfig))
            sites[where] = Site(connection, start_scheduler(cluster, own))
            await asyncio.to_thread(sites[where].replica.await_log_line, "ready", TIMEOUT_SECONDS)
            await create(connection, list(common_objects(attack)))
            await stack.enter_async_context(watching(sites[where]))
            await create(connection, [quiet_pod(f"first-{number}") for number in range(20)])
            await await_idle(sites[where].replica, TIMEOUT_SECONDS)
        await create_trees(sites[BESIDE].connection, attack)
        hostile = asyncio.create_task(disturb(sites[BESIDE].connection, attack))
        for site in sites.values():
            site.seconds.clear()
        used = {where: cpu_seconds(site.replica.process.pid) for where, site in sites.items()}
        earlier, began = hostile_attempts(sites[BESIDE].replica), time.monotonic()
        load = load_average()
        await create_quietly(list(sites.values()), seconds, rate)
        passed = time.monotonic() - began
        later = hostile_attempts(sites[BESIDE].replica)
        if hostile.done():
            hostile.result()
        hostile.cancel()
        figures: dict[str, Any] = {where: percentiles(site.seconds) for where, site in sites.items()}
        for where, site in sites.items():
            figures[where]["cpu_seconds"] = cpu_seconds(site.replica.process.pid) - used[where]
        for site in sites.values():
            await asyncio.to_thread(site.replica.process.stop, 20.0)
    return {
        **figures,
        "hostile_attempts": len(later) - len(earlier),
        "hostile_share": (sum(later) - sum(earlier)) / passed,
        "seconds": passed,
        "load": load,
    }


def percentiles(seconds: list[float]) -> dict[str, float]:
    """Return percentiles of times."""
    ordered = sorted(seconds)
    at = {"p50": 50, "p90": 90, "p99": 99}
    found = {name: ordered[len(ordered) * share // 100] for name, share in at.items()}
    return {**found, "max": ordered[-1], "pods": len(ordered)}


def hostile_attempts(replica: Replica) -> list[float]:
    """Return the seconds of the attempts at hostile trees."""
    lines = replica.log_lines("attempt")
    return [line["milliseconds"] / 1000 for line in lines if " hostile-" in line["root"]]


async def create_quietly(sites: Sequence[Site], seconds: float, rate: float) -> None:
    """Create quiet pods in all clusters at a rate, and wait for their binds for a while."""
    began, running = time.monotonic(), []

    async def create_one(site: Site, name: str) -> None:
        site.created[name] = time.monotonic()
        path, body = quiet_pod(name)
        await site.connection.post(path, body)

    for number in range(int(seconds * rate)):
        await asyncio.sleep(max(began + number / rate - time.monotonic(), 0.0))
        running += [asyncio.create_task(create_one(site, f"pod-{number}")) for site in sites]
    await asyncio.gather(*running)
    patience = time.monotonic() + PATIENCE_SECONDS
    while any(site.created for site in sites) and time.monotonic() < patience:  # noqa: ASYNC110  # no event
        await asyncio.sleep(0.1)
    for site in sites:
        site.seconds += [time.monotonic() - created for created in site.created.values()]


@contextlib.asynccontextmanager
async def watching(site: Site) -> AsyncIterator[None]:
    """Note when the quiet pods of a cluster are bound."""
    path, selected = PODS.path(QUIET), {"fieldSelector": "spec.nodeName!="}
    version = (await list_all(site.connection, path, selected)).resource_version
    accepted = asyncio.Event()

    async def read() -> None:
        hooks = WatchHooks(on_accepted=accepted.set)
        async with aclosing(watch(site.connection, path, version, params=selected, hooks=hooks)) as events:
            async for event in events:
                if event.type == "ADDED":
                    name = msgspec.json.decode(event.object, type=NamedPod).metadata["name"]
                    if name in site.created:
                        site.seconds.append(time.monotonic() - site.created.pop(name))

    reading = asyncio.create_task(read())
    try:
        await accepted.wait()
        yield
    finally:
        reading.cancel()


async def create_trees(connection: Connection, attack: Attack) -> None:
    """Create the trees of the hostile tenant."""
    numbers = list(range(attack.roots))
    for batch in (numbers[first : first + 20] for first in range(0, len(numbers), 20)):
        await create(connection, [item for number in batch for item in hostile_group(number, attack)])
        await create(connection, [item for number in batch for item in hostile_pods(number, attack)])


async def disturb(connection: Connection, attack: Attack) -> None:
    """Change the trees of the hostile tenant all the time, and replace some."""
    numbers = list(range(attack.roots))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(change(connection, attack, numbers))
        if attack.roots > 1:
            tasks.create_task(replace(connection, attack, numbers))


async def change(connection: Connection, attack: Attack, numbers: list[int]) -> None:
    """Change the labels of a pod of one tree after the other."""
    for turn in itertools.count():
        number = numbers[turn % len(numbers)]
        path = PODS.path(namespace_of(number, attack), f"root-{number}-0")
        with contextlib.suppress(Exception):
            await connection.patch(path, {"metadata": {"labels": {"turn": str(turn)}}}, MERGE_PATCH)
        await asyncio.sleep(SECONDS_BETWEEN_CHANGES)


async def replace(connection: Connection, attack: Attack, numbers: list[int]) -> None:
    """Delete the oldest tree, and create another."""
    for number in itertools.count(attack.roots):
        old = numbers.pop(0)
        namespace = namespace_of(old, attack)
        for index in range(MEMBERS):
            await connection.delete(PODS.path(namespace, f"root-{old}-{index}"))
        await connection.delete(NATIVE_POD_GROUPS.path(namespace, f"root-{old}"))
        await create(connection, list(hostile_group(number, attack)))
        await create(connection, list(hostile_pods(number, attack)))
        numbers.append(number)
        await asyncio.sleep(SECONDS_BETWEEN_REPLACEMENTS)


def namespace_of(number: int, attack: Attack) -> str:
    """Return the namespace of a hostile tree."""
    return f"hostile-{number % attack.namespaces}"


def common_objects(attack: Attack) -> Iterator[Item]:
    """Yield namespaces, and a priority class with pods that it could evict, if it were enough."""
    for name in (QUIET, *(f"hostile-{number}" for number in range(attack.namespaces))):
        yield NAMESPACES.path(), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    if attack.priority is not None:
        body = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, "value": 1000}
        yield PRIORITY_CLASSES.path(), {**body, "metadata": {"name": attack.priority}}
    for name in NODES.names():
        filler = pod_in("default", f"filler-{name}", {"cpu": "1"}, schedulerName=FILLER_SCHEDULER, nodeName=name)
        yield PODS.path("default"), filler


def quiet_pod(name: str) -> Item:
    """Return a pod of the quiet tenant."""
    return PODS.path(QUIET), pod_in(QUIET, name, SMALL)


def hostile_group(number: int, attack: Attack) -> Iterator[Item]:
    """Yield the group of a tree in one rack."""
    spec: Body = {"schedulingPolicy": {"gang": {"minCount": MEMBERS}}}
    spec["schedulingConstraints"] = {"topology": [{"key": RACK}]}
    if attack.priority is not None:
        spec["priorityClassName"] = attack.priority
    meta = {"name": f"root-{number}"}
    body = {"apiVersion": NATIVE_POD_GROUPS.api_version, "kind": NATIVE_POD_GROUPS.kind, "metadata": meta, "spec": spec}
    yield NATIVE_POD_GROUPS.path(namespace_of(number, attack)), body


def hostile_pods(number: int, attack: Attack) -> Iterator[Item]:
    """Yield the pods of a tree; two of them must be in different blocks, which no rack allows."""
    app = {"app": f"root-{number}"}
    loose = {"whenUnsatisfiable": "DoNotSchedule", "maxSkew": 99, "labelSelector": {"matchLabels": app}}
    block = {**loose, "topologyKey": f"{TOPOLOGY}/block"}
    for index in range(MEMBERS):
        strict = {"maxSkew": 1, "minDomains": 9} if index >= MEMBERS - 2 else {}
        constraints = [{**block, **strict}, {**loose, "topologyKey": RACK}]
        spec: Body = {"schedulingGroup": {"podGroupName": f"root-{number}"}, "topologySpreadConstraints": constraints}
        if attack.priority is not None:
            spec["priorityClassName"] = attack.priority
        namespace = namespace_of(number, attack)
        body = pod_in(namespace, f"root-{number}-{index}", {"cpu": f"{100 + number % 1000 + index}m"}, **spec)
        body["metadata"]["labels"] = app
        yield PODS.path(namespace), body


def pod_in(namespace: str, name: str, requests: dict[str, str], **spec: object) -> Body:
    """Return a pod of one container."""
    container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    whole = {"schedulerName": SCHEDULER_NAME, "containers": [container], "terminationGracePeriodSeconds": 0, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": whole}


if __name__ == "__main__":
    sys.exit(main())
