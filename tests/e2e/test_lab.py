"""The lab with real programs: clusters start fast, match their spec, and leave nothing behind."""

import contextlib
import json
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cpg_lab import building, folders
from cpg_lab.clusters import Cluster
from cpg_lab.errors import LabError, StartError
from cpg_lab.labs import Lab
from cpg_lab.nodes import NodePool
from cpg_lab.process_identity import ProcessIdentity
from cpg_lab.specs import COMPONENTS, ClusterSpec

pytestmark = pytest.mark.e2e

NODES = NodePool.parse("2 blocks x 2 racks x 2 nodes, cpu=2, label lab=yes, taint lab=yes:PreferNoSchedule")
FULL = ClusterSpec(gates="native", components=COMPONENTS, nodes=(NODES,))
OWNER = """
import json, time
from cpg_lab.clusters import Cluster
with Cluster() as cluster:
    pids = [process.pid for process in cluster.processes.values()]
    print(json.dumps([str(cluster.kubeconfig.parent), pids]), flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with all components, for all tests that do not damage it."""
    with Cluster(FULL) as running:
        yield running


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep temporary clusters and labs in a folder of this test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("KUBE_CPG_LAB", str(tmp_path / "labs"))
    return tmp_path


def pod(name: str, **spec: object) -> str:
    """Return a pod as JSON."""
    body = {"containers": [{"name": "main", "image": "none"}], **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body})


def field(cluster: Cluster, kind: str, name: str, path: str) -> str:
    """Return one field of an object."""
    return cluster.kubectl("get", kind, name, "-o", f"jsonpath={{{path}}}").stdout


def identities(cluster: Cluster) -> list[ProcessIdentity]:
    """Return the identities of a cluster's processes."""
    found = [process.identity for process in cluster.processes.values()]
    return [identity for identity in found if identity is not None]


def await_gone(gone: list[ProcessIdentity]) -> None:
    """Wait until none of the processes runs."""
    deadline = time.monotonic() + 15
    while any(identity.is_running() for identity in gone):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def served(cluster: Cluster, group_version: str) -> bool:
    """Return whether the API server serves a group and version."""
    return group_version in cluster.kubectl("api-versions").stdout.split()


def test_a_cluster_is_ready_within_ten_seconds(temporary: Path) -> None:
    """With all programs built; afterwards it leaves nothing."""
    building.ensure(ClusterSpec().programs())
    began = time.monotonic()
    with Cluster() as running:
        assert time.monotonic() - began < 10
        assert running.kubectl("get", "namespace", "default", "-o", "name").stdout == "namespace/default\n"
        assert not served(running, "scheduling.k8s.io/v1alpha3")
        processes, folder = identities(running), running.kubeconfig.parent
        assert len(processes) == 2
        assert folder.is_relative_to(temporary)
        assert running.kubeconfig.stat().st_mode & 0o777 == 0o600
    assert not any(identity.is_running() for identity in processes)
    assert not folder.exists()
    with pytest.raises(StartError, match="does not run"):
        _ = running.url


def test_two_clusters_are_independent(temporary: Path) -> None:
    """Clusters of two versions run at the same time."""
    oldest = ClusterSpec(kubernetes="1.30", components=("kwok",), nodes=(NodePool.parse("1 node"),))
    old, new = Cluster(oldest), Cluster()
    with contextlib.ExitStack() as stack, ThreadPoolExecutor() as pool:
        for starting in [pool.submit(stack.enter_context, each) for each in (old, new)]:
            starting.result()
        versions = [json.loads(one.kubectl("version", "-o", "json").stdout) for one in (old, new)]
        assert [version["serverVersion"]["gitVersion"] for version in versions] == ["v1.30.14", "v1.37.1"]
        old.kubectl("create", "namespace", "only-here")
        assert new.kubectl("get", "namespace", "only-here", check=False).returncode == 1
        assert len(old.kubectl("get", "nodes", "-o", "name").stdout.split()) == 1
        assert new.kubectl("get", "nodes", "-o", "name").stdout == ""
    assert [path for path in folders.temporary_clusters().iterdir() if path.is_dir()] == []
    assert temporary in folders.temporary_clusters().parents


def test_an_exception_ends_the_cluster_and_keeps_its_logs(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process runs, the data is removed, and the error has the folder of the logs."""
    monkeypatch.setattr(folders, "kept_logs", lambda: temporary / "kept")
    processes: list[ProcessIdentity] = []

    def fail() -> None:
        with Cluster() as running:
            processes.extend(identities(running))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        fail()
    assert len(processes) == 2
    assert not any(identity.is_running() for identity in processes)
    assert not any(path.is_dir() for path in folders.temporary_clusters().iterdir())
    (note,) = caught.value.__notes__
    kept = Path(note.rpartition(" ")[2])
    assert {"etcd.log", "apiserver.log"} <= {path.name for path in kept.iterdir()}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_nothing_is_left_of_an_owner_that_ends(number: signal.Signals, temporary: Path) -> None:
    """Ctrl-C and kill -9 of the owner end all processes; the data is removed at once, or by the next lab."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:  # noqa: S603
        assert owner.stdout is not None
        folder, pids = json.loads(owner.stdout.readline())
        processes = [identity for identity in map(ProcessIdentity.of, pids) if identity is not None]
        assert len(processes) == len(pids) == 2
        assert Path(folder).is_relative_to(temporary)
        owner.send_signal(number)
        owner.wait(20)
    await_gone(processes)
    if number is signal.SIGKILL:
        Lab("any").down()  # every command removes orphans
    assert not Path(folder).exists()


def test_native_gates_serve_the_native_api(cluster: Cluster) -> None:
    """The alpha API of pod groups is served, and pods keep their group."""
    assert served(cluster, "scheduling.k8s.io/v1alpha3")
    cluster.kubectl("apply", "-f", "-", input=pod("grouped", schedulingGroup={"podGroupName": "g"}, nodeName="no"))
    assert field(cluster, "pod", "grouped", ".spec.schedulingGroup.podGroupName") == "g"
    cluster.kubectl("delete", "pod", "grouped", "--force", "--wait=false")


def test_nodes_match_their_description(cluster: Cluster) -> None:
    """They are ready, and have the labels of their position and the taints."""
    names = cluster.kubectl("get", "nodes", "-o", "name").stdout.split()
    assert names == [f"node/{name}" for name in NODES.names()]
    ready = cluster.kubectl("get", "nodes", "-o", 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}')
    assert set(ready.stdout.split()) == {"True"}
    labels = json.loads(field(cluster, "node", "node-1-2-1", ".metadata.labels"))
    assert labels["topology.cpg.dev/rack"] == "rack-1-2"
    assert labels["lab"] == "yes"
    assert "PreferNoSchedule" in field(cluster, "node", "node-1-2-1", ".spec.taints")


def test_a_bound_pod_runs_until_it_is_deleted(cluster: Cluster) -> None:
    """Without any scheduler; it is gone soon after its deletion."""
    cluster.kubectl("apply", "-f", "-", input=pod("by-hand", schedulerName="none"))
    target = {"apiVersion": "v1", "kind": "Node", "name": "node-2-1-2"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "by-hand"}, "target": target}
    path = "/api/v1/namespaces/default/pods/by-hand/binding"
    cluster.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(binding))
    cluster.wait(lambda: field(cluster, "pod", "by-hand", ".status.phase") == "Running", 10, "running")
    assert field(cluster, "pod", "by-hand", ".spec.nodeName") == "node-2-1-2"
    assert field(cluster, "pod", "by-hand", '.status.conditions[?(@.type=="Ready")].status') == "True"
    began = time.monotonic()
    cluster.kubectl("delete", "pod", "by-hand")
    assert time.monotonic() - began < 5


def test_kube_scheduler_binds_a_pod(cluster: Cluster) -> None:
    """And kwok runs it."""
    cluster.kubectl("apply", "-f", "-", input=pod("by-peer"))
    cluster.wait(lambda: field(cluster, "pod", "by-peer", ".status.phase") == "Running", 10, "running")
    assert field(cluster, "pod", "by-peer", ".spec.nodeName") in NODES.names()
    cluster.kubectl("delete", "pod", "by-peer")


def test_access_is_verified_and_limited(cluster: Cluster) -> None:
    """Only our authority verifies the certificate, and a new service account has no rights."""
    request = urllib.request.Request(f"{cluster.url}/readyz")  # noqa: S310  # https, ours
    trusting = ssl.create_default_context(cafile=str(cluster.ca_file))
    with urllib.request.urlopen(request, context=trusting) as answer:  # noqa: S310
        assert answer.status == 200
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(request, context=ssl.create_default_context())  # noqa: S310
    cluster.kubectl("create", "serviceaccount", "weak")
    token = cluster.token_for("weak")
    answer_no = cluster.kubectl("auth", "can-i", "list", "pods", f"--token={token}", check=False)
    assert answer_no.stdout == "no\n"


def test_components_can_be_killed_and_started_again(cluster: Cluster) -> None:
    """A killed component is reported as dead, and works again on the same port."""
    cluster.kill_component("kwok")
    assert cluster.dead() == {"kwok": -signal.SIGKILL}
    with pytest.raises(LabError, match="waiting for nothing, but kwok died"):
        cluster.wait(lambda: False, what="nothing")
    cluster.start_component("kwok")
    assert cluster.dead() == {}
    url = cluster.url
    cluster.stop_component("apiserver")
    cluster.start_component("apiserver")
    assert cluster.url == url
    assert cluster.kubectl("get", "nodes", "-o", "name").stdout


def test_a_named_lab_outlives_the_command(temporary: Path) -> None:
    """Later commands find it, report dead components and replace a dead lab; after `down` nothing is left."""
    spec = ClusterSpec(components=("kwok",), nodes=(NodePool.parse("2 nodes"),))
    lab = Lab("named")
    with contextlib.ExitStack() as stack:
        stack.callback(lab.down)
        assert lab.up(spec)
        began = time.monotonic()
        assert not Lab("named").up(spec)
        assert time.monotonic() - began < 1
        assert len(lab.access().kubectl("get", "nodes", "-o", "name").stdout.split()) == 2
        assert lab.report().is_healthy

        state = lab.folder.read_state()
        assert state is not None
        dict(state.components)["kwok"].send(signal.SIGKILL)
        await_gone([dict(state.components)["kwok"]])
        assert [name for name, _, alive in lab.report().components if not alive] == ["kwok"]

        state.supervisor.send(signal.SIGKILL)
        await_gone([state.supervisor, *(identity for _, identity in state.components)])
        assert lab.report().phase == "dead"
        assert lab.up(ClusterSpec())
        again = lab.folder.read_state()
        assert again is not None
    assert not lab.down()
    assert not any(identity.is_running() for identity in (again.supervisor, *dict(again.components).values()))
    assert not (temporary / "labs").exists()
