"""The client against a real API server: watches that survive its restart, leases, and conditional writes."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import ObjectMeta
from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.errors import ApiError, ClientError
from cpg_client.informers import Informers
from cpg_client.leader_election import ApiLeaseStore, LeaderElector, LeaseSettings
from cpg_client.listing import list_all
from cpg_client.patching import Event, apply_status, bind, delete_pod, merge_status, record_event, set_pod_status
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import EVENTS, NAMESPACES, PODS
from cpg_client.stores import Added, Change, Deleted, Modified, keep_whole
from cpg_client.timing import cancel_and_wait
from cpg_client.watching import watch
from cpg_lab.clusters import Cluster

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run an API server and its etcd."""
    with Cluster() as running:
        yield running


@pytest.fixture
async def connection(cluster: Cluster) -> AsyncIterator[Connection]:
    """Connect as the administrator."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        yield connection


@pytest.fixture
async def namespace(connection: Connection, request: pytest.FixtureRequest) -> str:
    """Create a namespace for one test, with the service account that pods need."""
    name: str = request.node.name.replace("_", "-")[:60].strip("-")
    await connection.post(NAMESPACES.path(), {"metadata": {"name": name}})
    await connection.post(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
    return name


def body(name: str) -> dict[str, Any]:
    """Return a pod for a scheduler that does not exist."""
    spec = {"schedulerName": "none", "containers": [{"name": "main", "image": "none"}]}
    return {"metadata": {"name": name}, "spec": spec}


class Mirror:
    """A namespace's pods by a reflector's changes, to be compared with the server's list."""

    def __init__(self, connection: Connection, namespace: str) -> None:
        self.pods: dict[str, Pod] = {}
        self.failures: list[ClientError] = []
        self.path = PODS.path(namespace)
        self._connection = connection
        self._expected: dict[str, Pod] = {}
        self._equal = asyncio.Event()
        source = Source(resource=PODS, kind=Pod, project=keep_whole, namespace=namespace)
        self.reflector = Reflector(connection, source, self._change, on_failure=self._fail)

    def _change(self, change: Change[Pod]) -> None:
        match change:
            case Added(key, new) | Modified(key, _, new):
                self.pods[key] = new
            case Deleted(key):
                del self.pods[key]
        self._check()

    def _check(self) -> None:
        (self._equal.set if self._expected == self.pods else self._equal.clear)()

    def _fail(self, error: ClientError, _: float) -> None:
        self.failures.append(error)

    async def create(self, *names: str) -> None:
        """Create pods; fail if one cannot be created."""
        outcome = await create_all(self._connection, ((self.path, body(name)) for name in names))
        assert outcome.failures == ()

    async def await_equal(self) -> None:
        """Wait until the changes have led to the server's state."""
        items = (await list_all(self._connection, self.path)).items
        pods = [msgspec.json.decode(item, type=Pod) for item in items]
        self._expected = {pod.metadata.key: pod for pod in pods}
        self._check()
        async with asyncio.timeout(10):
            await self._equal.wait()
        assert self.pods == dict(self.reflector.objects)


async def compact(cluster: Cluster, connection: Connection) -> None:
    """Make etcd drop all versions except the latest."""
    version = (await list_all(connection, NAMESPACES.path())).resource_version
    async with Connection(Endpoint(server=cluster._control_plane.url("etcd"))) as etcd:
        await etcd.post("/v3/kv/compaction", {"revision": version, "physical": True})


async def error_of(doing: Any) -> ApiError:  # noqa: ANN401  # any of the writes
    """Return the error of a request."""
    with pytest.raises(ApiError) as caught:
        await doing
    return caught.value


async def test_changes_lead_to_the_servers_state(connection: Connection, namespace: str) -> None:
    """Hundreds of pods are created, bound, changed and deleted meanwhile."""
    mirror = Mirror(connection, namespace)
    await mirror.create(*(f"first-{number}" for number in range(100)))
    async with Informers(mirror.reflector) as informers:
        await informers.wait_synced()
        assert len(mirror.pods) == 100
        await mirror.create(*(f"second-{number}" for number in range(100)))
        await mirror.await_equal()
        pods = [pod.metadata for pod in mirror.pods.values()]
        await asyncio.gather(*(bind(connection, pod, f"node-{number}") for number, pod in enumerate(pods)))
        await asyncio.gather(*(delete_pod(connection, pod, grace_period_seconds=0) for pod in pods[::2]))
        await mirror.create(pods[0].name)
        await mirror.await_equal()
        again = mirror.pods[pods[0].key]
        assert (again.metadata.uid == pods[0].uid, again.spec.node_name) == (False, "")
        assert mirror.pods[pods[1].key].spec.node_name == "node-1"
    assert mirror.failures == []
    assert mirror.reflector.counts.lists == 1


async def test_a_reflector_survives_a_restart_of_the_api_server(
    cluster: Cluster, connection: Connection, namespace: str
) -> None:
    """No change is lost even with a compacted history, and a watch from an old version gets the status 410."""
    mirror = Mirror(connection, namespace)
    await mirror.create("before", "gone")
    async with Informers(mirror.reflector) as informers:
        await informers.wait_synced()
        await compact(cluster, connection)
        await asyncio.to_thread(cluster.stop_component, "apiserver")
        assert mirror.failures
        await asyncio.to_thread(cluster.start_component, "apiserver")
        await mirror.create("after")
        await connection.delete(PODS.path(namespace, "gone"), {"gracePeriodSeconds": 0})
        await mirror.await_equal()
        assert {pod.metadata.name for pod in mirror.pods.values()} == {"before", "after"}
        assert informers.longest_silence(connection.timing.clock()) < 10
    async with aclosing(watch(connection, PODS.path(), "1")) as events:
        assert (await error_of(anext(events))).is_gone


async def test_leadership_passes_from_one_process_to_the_next(connection: Connection, namespace: str) -> None:
    """A standby leads at once when the leader ends, otherwise after the lease duration; two never lead together."""
    settings = LeaseSettings(lease_duration=3, renew_deadline=2, retry_period=0.4)
    leading: list[str] = []
    times: dict[str, float] = {}

    def candidate(name: str) -> asyncio.Task[None]:
        async def work() -> None:
            times[name] = time.monotonic()
            leading.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                leading.remove(name)

        elector = LeaderElector(ApiLeaseStore(connection, namespace, "cpg"), name, settings)
        return asyncio.create_task(elector.run(work))

    async def leader(name: str) -> None:
        async with asyncio.timeout(6):
            while leading != [name]:
                assert len(leading) < 2
                await asyncio.sleep(0.01)

    first = candidate("first")
    await leader("first")
    second = candidate("second")
    await asyncio.sleep(1)
    ended = time.monotonic()
    await cancel_and_wait(first)
    await leader("second")
    assert times["second"] - ended < 1
    await connection.patch(
        f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/cpg", {"spec": {"holderIdentity": "dead"}}
    )
    third = candidate("third")
    died = time.monotonic()
    await leader("third")
    assert 2 < times["third"] - died < 5
    assert "LeadershipLostError" in repr(second.exception())
    await cancel_and_wait(third)


async def test_writes_take_effect_and_are_conditional(connection: Connection, namespace: str) -> None:
    """Conditions, nominations, binds and deletions change the pod, and never another pod of the same name."""
    path = PODS.path(namespace, "web")
    made = msgspec.json.decode(await connection.post(PODS.path(namespace), body("web")), type=Pod).metadata
    namesake = msgspec.structs.replace(made, uid="00000000-0000-0000-0000-000000000000")

    async def now() -> Pod:
        return msgspec.json.decode(await connection.get(path), type=Pod)

    failed = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message="too large")
    await set_pod_status(connection, made, failed, PodCondition(type="Other", status="True"), nominated_node="n1")
    await set_pod_status(connection, made, PodCondition(type="PodScheduled", status="False", reason="Waiting"))
    status = (await now()).status
    found = {one.type: (one.status, one.reason, one.message) for one in status.conditions or ()}
    assert found == {"PodScheduled": ("False", "Waiting", ""), "Other": ("True", "", "")}
    assert status.nominated_node_name == "n1"
    await set_pod_status(connection, made, nominated_node=None)
    assert (await now()).status.nominated_node_name == ""

    applied = {"conditions": [{"type": "Mine", "status": "True"}]}
    await apply_status(connection, PODS, made, status=applied, manager="cpg-test")
    await merge_status(connection, PODS, made, status={"message": "hello"})
    assert {one.type for one in (await now()).status.conditions or ()} == {"PodScheduled", "Other", "Mine"}
    await apply_status(connection, PODS, made, status={}, manager="cpg-test")
    assert {one.type for one in (await now()).status.conditions or ()} == {"PodScheduled", "Other"}

    stale = merge_status(connection, PODS, made, status={"message": "late"}, unchanged=True)
    for refused in (
        stale,
        merge_status(connection, PODS, namesake, status={"message": "no"}),
        set_pod_status(connection, namesake, failed),
        apply_status(connection, PODS, namesake, status=applied, manager="cpg-test"),
        bind(connection, namesake, "n1"),
        delete_pod(connection, namesake),
    ):
        assert (await error_of(refused)).is_conflict
    await bind(connection, made, "n1")
    assert (await error_of(bind(connection, made, "n2"))).is_conflict
    assert (await now()).spec.node_name == "n1"
    await delete_pod(connection, made, grace_period_seconds=0)
    assert (await error_of(connection.get(path))).is_not_found


async def test_events_are_accepted(connection: Connection, namespace: str) -> None:
    """The API server accepts the longest note about an object with the longest name."""
    target = ObjectMeta(name="x" * 253, namespace=namespace, uid="u-1")
    event = Event(
        type="Warning", reason="FailedScheduling", action="Scheduling", note="ä" * 2000, controller="c/d", instance="i"
    )
    await record_event(connection, PODS, target, event)
    (found,) = (await list_all(connection, EVENTS.path(namespace))).items
    assert msgspec.json.decode(found)["reason"] == "FailedScheduling"
