"""Malformed and extreme objects against a real API server, with scheduler and operator beside it.

The suite sends 1,500 requests; ``make hostile`` sends 100,000 (``HOSTILE_OBJECTS``) from ``HOSTILE_SEED``. A gang comes
every few seconds and must be scheduled.
"""

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import result_files
from tests.hostile import canary, worlds
from tests.hostile.spoiled_objects import VALID, SpoiledObject, Spoiler

from cpg_api.decoding import decode
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, owner_kinds
from cpg_api.scheduling.names import GROUP
from cpg_client import resources
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, STATUS, Resource
from cpg_client.timing import cancel_and_wait
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments, PodProcess
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

REQUESTS = int(os.environ.get("HOSTILE_OBJECTS", "1500"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
RESULTS = os.environ.get("HOSTILE_RESULTS", "")
"""The folder for the result file; empty if the results are not kept."""
MAX_SECONDS = float(os.environ.get("HOSTILE_MAX_SECONDS", "120"))
"""Seconds in which the canary has to be bound; an idle machine takes less than one."""
IN_FLIGHT = 16
MAX_OBJECTS = 300
"""Objects that exist at once beside the valid ones."""
SECONDS_BETWEEN_CANARIES = 3.0
OWNERS = Path(__file__).parents[1] / "owners" / "owner_kinds.yaml"
MISTAKES = (*worlds.MISTAKES, "process failed", "Traceback", "forbidden: User")
NOT_SERVED = ("DisaggregatedSet", "TrainJob", "Fleet", "Namespace")
"""Kinds without a CRD here, and namespaces: those that are deleted stay without a controller manager."""
OWNER_KINDS = [Resource(one.group, one.versions[-1], one.plural, one.kind) for one in owner_kinds(DEFAULT_INTEGRATIONS)]
RESOURCES = {
    (one.api_version, one.kind): one
    for one in (*vars(resources).values(), *OWNER_KINDS)
    if isinstance(one, Resource) and one.kind not in NOT_SERVED
}
CANARY_GROUPS = f"/apis/{GROUP}/v1alpha3/namespaces/{canary.NAMESPACE}/podgroups"
Plain = dict[str, Any]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with both flavours of groups and some kinds of owners."""
    with Cluster(ClusterSpec(gates="native")) as running:
        running.kubectl("apply", "-f", str(OWNERS))
        yield running


@pytest.fixture(scope="module")
def processes(
    cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, PodProcess]]:
    """Run operator and scheduler; neither may end or log an exception."""
    process = {"replicas": 1, "settings": {"leaderElect": False}}
    release = install(cluster, {"scheduler": process, "operator": process})
    with Deployments(cluster.access, release.deployments, folder=tmp_path_factory.mktemp("pods")) as running:
        yield {name.removeprefix("kube-cpg-"): pod for name, (pod,) in running.pods.items()}


class Attack:
    """Requests with spoiled objects, several at a time, and what became of them."""

    def __init__(self, connection: Connection, seed: int) -> None:
        """Send nothing yet."""
        self._connection = connection
        valid = [one for one in VALID if (one["apiVersion"], one["kind"]) in RESOURCES]
        self._spoiler = Spoiler(seed, valid, for_server=True)
        self._existing = deque[str]()
        self.answers = Counter[int]()
        self.sent = 0

    async def prepare(self) -> None:
        """Create the valid objects that others name, and that are changed."""
        for name in ("hostile", canary.NAMESPACE):
            await self._connection.post(NAMESPACES.path(), {"metadata": {"name": name}})
        for found in self._spoiler.world():
            await self._request("POST", self._path(found), found.body)
        self.answers.clear()
        self._existing.clear()

    async def run(self, count: int) -> None:
        """Send so many requests."""
        async with asyncio.TaskGroup() as workers:
            for _ in range(IN_FLIGHT):
                workers.create_task(self._work(count))

    async def _work(self, count: int) -> None:
        while self.sent < count:
            self.sent += 1
            choice = self._spoiler.random.random()
            found = self._spoiler.next(f"-{self.sent}" if choice < 0.6 else "")
            if choice < 0.6:
                await self._request("POST", self._path(found), found.body)
            else:
                part = STATUS if choice < 0.8 else None
                await self._request("PATCH", self._path(found, found.name, part), found.body)
            while len(self._existing) > MAX_OBJECTS:
                await self._delete(self._existing.popleft())

    def _path(self, found: SpoiledObject, name: str | None = None, part: str | None = None) -> str:
        resource = RESOURCES[found.api_version, found.kind]
        return resource.path("hostile" if resource.namespaced else None, name, part)

    async def _request(self, method: str, path: str, body: bytes) -> None:
        """Send one request as an administrator, without field validation: unknown fields are ignored."""
        send = self._connection.post if method == "POST" else self._connection.patch
        try:
            answer: Plain = decode(await send(path, body, params={"fieldValidation": "Ignore"}))
        except ApiError as error:
            self.answers[error.status] += 1
            return
        except ConnectionFailedError:  # the API server closes connections with bodies that are too large
            self.answers[0] += 1
            return
        self.answers[200] += 1
        if method == "POST":
            self._existing.append(f"{path}/{answer['metadata']['name']}")

    async def _delete(self, path: str) -> None:
        """Delete an object; finalizers that an attack has set would keep it for ever."""
        try:
            await self._connection.patch(path, {"metadata": {"finalizers": None}})
            await self._connection.delete(path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
        except ApiError as error:
            if error.status >= 500:
                raise


async def await_canary(connection: Connection) -> float:
    """Create a gang; return the seconds until its pods have the nodes that they must have."""
    began, pods = time.monotonic(), PODS.path(canary.NAMESPACE)
    (_, group), *members = canary.gang("fits", canary.SIZE, {"priorityClassName": "canary"})
    await connection.post(CANARY_GROUPS, group)
    for _, pod in members:
        await connection.post(pods, pod)
    expected = [f"canary-{number}" for number in range(canary.SIZE)]
    try:
        await until(lambda: bound_nodes(connection), expected)
    except TimeoutError:
        states = [
            (one["metadata"], one["spec"].get("nodeName"), one["status"]) for one in await items(connection, pods)
        ]
        nodes = [
            (one["metadata"]["labels"], one["spec"], one["status"]) for one in await items(connection, NODES.path())
        ]
        raise AssertionError(f"pods {states}, nodes {nodes}") from None
    seconds = time.monotonic() - began
    for _, pod in members:
        await connection.delete(f"{pods}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    await connection.delete(f"{CANARY_GROUPS}/fits")
    await until(lambda: items(connection, CANARY_GROUPS), [])  # the operator removes its finalizer
    return seconds


async def until(read: Callable[[], Awaitable[list[Any]]], expected: list[Any]) -> None:
    """Wait until what is read is as expected."""
    async with asyncio.timeout(MAX_SECONDS):
        while await read() != expected:  # noqa: ASYNC110 - requests are all that there is to wait with
            await asyncio.sleep(0.05)


async def items(connection: Connection, path: str) -> list[Plain]:
    """Return a collection."""
    found: list[Plain] = decode(await connection.get(path))["items"]
    return found


async def bound_nodes(connection: Connection) -> list[str]:
    """Return the nodes of the canary's pods."""
    pods = await items(connection, PODS.path(canary.NAMESPACE))
    return sorted(pod["spec"]["nodeName"] for pod in pods if "nodeName" in pod["spec"])


async def watch_canaries(connection: Connection, seconds: list[float]) -> None:
    """Have a gang scheduled every few seconds, until cancelled."""
    while True:
        seconds.append(await await_canary(connection))
        await asyncio.sleep(SECONDS_BETWEEN_CANARIES)


async def test_scheduler_and_operator_stand_an_attack(cluster: Cluster, processes: dict[str, PodProcess]) -> None:
    """They live, log no exception, and schedule a gang every few seconds."""
    measured, seconds = result_files.measured_code(), list[float]()
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        attack = Attack(connection, SEED)
        await attack.prepare()
        await connection.post(PRIORITY_CLASSES.path(), canary.PRIORITY_CLASS)
        for number in range(canary.SIZE):
            await connection.post(NODES.path(), canary.node(number))
        began = time.monotonic()
        tasks = [asyncio.create_task(one) for one in (watch_canaries(connection, seconds), attack.run(REQUESTS))]
        done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in rest:
            await cancel_and_wait(task)
        for task in done:
            task.result()
        took = time.monotonic() - began
    logs = {name: pod.process.output() for name, pod in processes.items()}
    figures = {
        "requests": attack.sent,
        "seed": SEED,
        "seconds": round(took, 1),
        "answers": dict(sorted(attack.answers.items())),
        "canaries": len(seconds),
        "canary_seconds": {"median": sorted(seconds)[len(seconds) // 2], "largest": max(seconds)},
        "refused_objects": {name: log.count("object refused") for name, log in logs.items()},
        "peak_mb": {name: round(result_files.peak_mb(pod.process.pid)) for name, pod in processes.items()},
        "load_after": result_files.load_average(),
    }
    if RESULTS:
        result_files.write_result("hostile-requests", figures, measured=measured)
    assert sum(attack.answers.values()) == REQUESTS, figures
    assert attack.answers[200] > REQUESTS / 20
    assert all(pod.is_alive() for pod in processes.values())
    assert {(name, mistake) for name, log in logs.items() for mistake in MISTAKES if mistake in log} == set()
