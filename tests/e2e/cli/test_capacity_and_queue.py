"""``top``, ``queue``, ``wait`` and ``doctor`` against a real API server, a real scheduler and a real port-forward."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.cli.command_line import CommandLine
from tests.e2e.cli.served_pages import forwarded_release

from cpg_api.scheduling.names import API_VERSION, POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_lab.clusters import Cluster
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

RACK, GPU = "topology.cpg.dev/rack", "nvidia.com/gpu"
NODES = "2 blocks x 2 racks x 2 nodes, cpu=8, memory=32Gi, nvidia.com/gpu=4"


@pytest.fixture(scope="module")
def released(install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a cluster with both processes of the chart; the ports of the scheduler can be forwarded."""
    spec = ClusterSpec(components=("controller-manager", "kwok"), nodes=(NodePool.parse(NODES),))
    with Cluster(spec) as running, forwarded_release(running, install, tmp_path_factory.mktemp("pods")):
        yield running


@pytest.fixture(scope="module")
def cli(released: Cluster) -> CommandLine:
    """Return the command line of that cluster."""
    return CommandLine(released)


def gang(
    name: str, pods: int, *, gpu: int, minimum: int | None = None, namespace: str = "default"
) -> list[dict[str, Any]]:
    """Return a PodGroup that requires a rack, and its pods."""
    policy = {"gang": {"minCount": minimum or pods}}
    spec = {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": RACK}]}}
    where = {"namespace": namespace}
    found: list[dict[str, Any]] = [
        {"apiVersion": API_VERSION, "kind": "PodGroup", "metadata": {"name": name, **where}, "spec": spec}
    ]
    main = {"name": "main", "image": "none", "resources": {"requests": {GPU: gpu}, "limits": {GPU: gpu}}}
    for number in range(pods):
        meta = {"name": f"{name}-{number}", "labels": {POD_GROUP_LABEL: name}, **where}
        pod = {"schedulerName": SCHEDULER_NAME, "terminationGracePeriodSeconds": 0, "containers": [main]}
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod})
    return found


def create(cluster: Cluster, objects: Sequence[dict[str, Any]]) -> None:
    """Create objects."""
    cluster.kubectl("create", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))


@pytest.fixture(scope="module")
def full(released: Cluster, cli: CommandLine) -> None:
    """Place a gang of three pods with one GPU each in one rack, and let one wait that needs three nodes of a rack."""
    create(released, gang("small", 3, gpu=1))
    assert cli("wait", "small", "--timeout", "20s").returncode == 0
    create(released, gang("large", 3, gpu=4))
    refused = cli("wait", "large", "--timeout", "3s")
    assert (refused.returncode, "0/4 domains" in refused.stdout) == (1, True), refused
    assert "next: see `kubectl cpg explain large" in refused.stderr


@pytest.mark.usefixtures("full")
def test_top_counts_the_pods_that_fit_into_each_domain(cli: CommandLine) -> None:
    """A rack with three GPUs in use has five free, and neither of its nodes has room for a pod with four."""
    answer = json.loads(cli("top", "--for", "gpu=4,cpu=1", "-o", "json").stdout)
    racks = {one["name"]: one for one in answer["domains"] if one["level"] == RACK}
    assert answer["shape"] == {GPU: "4", "cpu": "1"}
    assert sorted(one["pods"] for one in racks.values()) == [0, 2, 2, 2]
    (used,) = (one for one in racks.values() if one["pods"] == 0)
    assert (used["free"][GPU], used["allocatable"][GPU], used["fragmentation"]) == (5, 8, 1.0)


@pytest.mark.usefixtures("full")
def test_a_name_that_is_no_resource_is_a_usage_error(cli: CommandLine) -> None:
    """The error lists what nodes have."""
    done = cli("top", "--for", "gpus=1")
    assert (done.returncode, GPU in done.stderr) == (2, True)


@pytest.mark.usefixtures("full")
def test_the_queue_is_that_of_the_scheduler(cli: CommandLine) -> None:
    """It knows attempts; a user without the right to port-forward gets the order from conditions."""
    live = json.loads(cli("queue", "-o", "json").stdout)
    (waiting,) = live["units"]
    assert (live["source"], waiting["root"], waiting["position"]) == ("scheduler", "PodGroup default/large", 1)
    assert waiting["attempts"] >= 1
    text = cli("queue")
    assert ("SOURCE  scheduler, live" in text.stdout, text.stderr) == (True, "")
    assert max(map(len, text.stdout.splitlines())) <= 100


def test_a_dump_of_the_scheduler_is_replayed(cli: CommandLine, tmp_path: Path) -> None:
    """It comes through the port-forward; a user without that right gets what that user may list."""
    file = str(tmp_path / "dump.json.gz")
    dumped = cli("dump", "-o", file)
    assert (dumped.returncode, "from the scheduler" in dumped.stderr) == (0, True), dumped.stderr
    replayed = cli("replay", file, "large")
    assert (replayed.returncode, "large waits" in replayed.stdout) == (1, True), replayed.stderr
    stranger = cli("dump", "-o", file, "--as", "stranger")
    assert (stranger.returncode, "you may not list all nodes" in stranger.stderr) == (3, True)


def test_the_queue_of_a_viewer_follows_from_conditions(released: Cluster, cli: CommandLine, full: None) -> None:
    """A user with ``view`` in one namespace sees the same unit and reason, with the attempts that its status shows."""
    del full
    released.kubectl("create", "rolebinding", "viewer", "--clusterrole=view", "--user=viewer")
    done = cli("queue", "-o", "json", "--as", "viewer")
    answer = json.loads(done.stdout)
    (waiting,) = answer["units"]
    assert (answer["source"], waiting["root"]) == ("conditions", "PodGroup default/large")
    assert waiting["attempts"] >= 1
    assert "0/4 domains" in waiting["reason"]
    assert "the scheduler is not asked" in done.stderr
    stranger = cli("queue", "--as", "stranger")
    assert (stranger.returncode, "cannot list resource" in stranger.stderr) == (3, True)


@pytest.mark.usefixtures("full")
def test_wait_sees_a_tree_that_comes_later_and_its_end(released: Cluster, cli: CommandLine) -> None:
    """Each change of the reason is one line."""
    waiting = cli.start("wait", "late", "--for", "healthy", "--timeout", "30s")
    first = waiting.stdout.readline() if waiting.stdout else ""
    assert first == "late is not healthy: it does not exist\n"
    create(released, gang("late", 1, gpu=1))
    rest, _ = waiting.communicate(timeout=40)
    lines = rest.splitlines()
    assert (lines[-1], waiting.returncode) == ("late is healthy", 0)
    assert len(lines) == len(set(lines))
    released.kubectl("delete", "podgroup.scheduling.cpg.dev", "late", "--wait=false")
    hung = cli("wait", "late", "--for", "gone", "--timeout", "0")
    assert (hung.returncode, hung.stdout.startswith("late is not gone: "), "1 pod left" in hung.stdout) == (
        1,
        True,
        True,
    )
    released.kubectl("delete", "pod", "late-0", "--wait=false")
    assert cli("wait", "podgroup/late", "--for", "gone", "--timeout", "20s").returncode == 0


@pytest.mark.usefixtures("full")
def test_targets_are_completed_with_the_names_of_trees(cli: CommandLine) -> None:
    """As kubectl asks for them."""
    done = cli("wait", "-n", "default", "s", KUBECTL_CPG_COMPLETE_WORDS="1")
    assert (done.stdout, done.returncode) == ("small\n:4\n", 0)


@pytest.mark.usefixtures("full")
def test_the_doctor_finds_what_is_wrong(released: Cluster, cli: CommandLine) -> None:
    """First nothing fails; then a pod with another scheduler, and one of a group that does not exist, are named."""
    healthy = cli("doctor")
    assert healthy.returncode == 0, healthy
    assert "the scheduler that leads is up to date" in healthy.stdout
    objects = gang("lost", 1, gpu=1)[1:]
    foreign = gang("foreign", 1, gpu=1)
    foreign[1]["spec"]["schedulerName"] = "default-scheduler"
    create(released, [*objects, *foreign])
    checks = json.loads((done := cli("doctor", "-o", "json")).stdout)["checks"]
    found = {(one["level"], one["text"]) for one in checks if one["check"] == "pods"}
    assert done.returncode == 1
    assert found == {
        ("fail", "1 pod in a group with another scheduler: default/foreign-0 (default-scheduler)"),
        ("warn", "1 pod with a group that does not exist: default/lost-0"),
    }
    stranger = cli("doctor", "--as", "stranger")
    assert (stranger.returncode, "you may not list nodes" in stranger.stdout) == (0, True)
