"""Command lines: pure functions, so they are compared as such."""

import re
from pathlib import Path

import pytest

from cpg_lab import commands, components
from cpg_lab.commands import NATIVE_GATES, ClusterFiles, CommandContext
from cpg_lab.components import ComponentKind
from cpg_lab.specs import ClusterSpec

PORTS = {port: number for number, port in enumerate((p for kind in components.ALL for p in kind.ports), 2000)}


def setting(spec: ClusterSpec) -> CommandContext:
    """Give a setting with made-up files and ports."""
    return CommandContext(spec=spec, files=ClusterFiles(Path("/lab")), ports=PORTS, stages=Path("/stages.yaml"))


@pytest.mark.parametrize("kind", components.ALL, ids=lambda kind: kind.name)
def test_everything_listens_on_loopback_alone(kind: ComponentKind) -> None:
    """Each component's address is loopback, with the ports that were chosen for it, and no other address occurs."""
    command = " ".join(kind.command(setting(ClusterSpec())))
    listening = re.findall(r"--(?:listen|bind|server)-[a-z-]+=(?:https?://)?([^\s:]+)", command)
    assert set(listening) <= {"127.0.0.1"}
    assert listening
    for port in kind.ports:
        assert str(PORTS[port]) in command


@pytest.mark.parametrize("name", ["apiserver", "controller-manager", "scheduler"])
def test_gates_are_the_same_everywhere(name: str) -> None:
    """With native gates every component of Kubernetes has them all; with default gates none has any."""
    kind = components.BY_NAME[name]
    gates = "--feature-gates=" + ",".join(f"{gate}=true" for gate in NATIVE_GATES)
    assert gates in kind.command(setting(ClusterSpec(gates="native")))
    assert not [part for part in kind.command(setting(ClusterSpec())) if "gates" in part]


def test_native_apis_are_served_only_with_native_gates() -> None:
    """The alpha versions are switched on in the API server together with the gates."""
    served = "--runtime-config=scheduling.k8s.io/v1alpha3=true,scheduling.k8s.io/v1beta1=true"
    assert served in commands.apiserver(setting(ClusterSpec(gates="native")))
    assert served not in commands.apiserver(setting(ClusterSpec()))


def test_authorization_is_on() -> None:
    """Role-based access control decides, and TLS uses the cluster's own certificate."""
    command = commands.apiserver(setting(ClusterSpec()))
    assert "--authorization-mode=RBAC" in command
    assert "--tls-cert-file=/lab/server.crt" in command


def test_etcd_skips_the_disk_unless_told() -> None:
    """Waiting for the disk is for tests of etcd's crashes only."""
    assert "--unsafe-no-fsync" in commands.etcd(setting(ClusterSpec()))
    assert "--unsafe-no-fsync" not in commands.etcd(setting(ClusterSpec(fsync=True)))


def test_watches_come_from_memory_unless_told() -> None:
    """Only where they come from etcd does its compaction end them while the server lives."""
    assert "--watch-cache=false" in commands.apiserver(setting(ClusterSpec(watch_cache=False)))
    assert not [part for part in commands.apiserver(setting(ClusterSpec())) if "watch-cache" in part]


def test_load_settings_are_passed_only_when_set() -> None:
    """The API server keeps its own bounds unless the spec gives others."""
    flags = {"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500"}
    spec = ClusterSpec(max_requests_inflight=3000, max_mutating_requests_inflight=1500)
    assert flags <= set(commands.apiserver(setting(spec)))
    assert not [part for part in commands.apiserver(setting(ClusterSpec())) if "inflight" in part]


def test_node_failure_is_played_only_when_asked() -> None:
    """Leases and the controller that watches them come together or not at all."""
    off, on = setting(ClusterSpec()), setting(ClusterSpec(node_lifecycle=True))
    assert "--controllers=*,-node-lifecycle-controller" in commands.controller_manager(off)
    assert "--controllers=*" in commands.controller_manager(on)
    assert "--node-lease-duration-seconds=0" in commands.kwok(off)
    assert "--node-lease-duration-seconds=40" in commands.kwok(on)


def test_the_peer_is_not_throttled() -> None:
    """The peer scheduler gets the client rate that a fair comparison needs, and no leader election."""
    config = commands.scheduler_config(setting(ClusterSpec()))
    assert config["leaderElection"] == {"leaderElect": False}
    assert config["clientConnection"] == {"kubeconfig": "/lab/scheduler.kubeconfig", "qps": 5000, "burst": 5000}


def test_kwok_leaves_real_nodes_alone() -> None:
    """Kwok plays only the nodes that say so."""
    command = commands.kwok(setting(ClusterSpec()))
    assert "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake" in command
    assert not [part for part in command if "manage-all-nodes" in part]
