"""Command lines, compared as data."""

import re
from pathlib import Path

import pytest
import yaml

from cpg_lab import commands, components
from cpg_lab.commands import NATIVE_GATES, ClusterFiles, CommandContext
from cpg_lab.components import ComponentKind
from cpg_lab.specs import ClusterSpec

PORTS = {port: number for number, port in enumerate((p for kind in components.ALL for p in kind.ports), 2000)}


def context(spec: ClusterSpec) -> CommandContext:
    """Return a context with made-up files and ports."""
    return CommandContext(spec=spec, files=ClusterFiles(Path("/lab")), ports=PORTS, stages=Path("/stages.yaml"))


@pytest.mark.parametrize("kind", components.ALL, ids=lambda kind: kind.name)
def test_components_listen_on_loopback_only(kind: ComponentKind) -> None:
    """Each command line or configuration has its own ports on loopback, and no other address."""
    given = context(ClusterSpec())
    command = " ".join(kind.command(given)) + (yaml.safe_dump(kind.config(given)) if kind.config else "")
    listening = re.findall(r"--(?:listen|bind|server|health-probe-bind)-[a-z-]+=(?:https?://)?([^\s:]+)", command)
    listening += re.findall(r"(?:healthProbeBindAddress|host): ([^\s:]+)", command)
    assert set(listening) <= {"127.0.0.1"}
    assert listening
    for port in kind.ports:
        assert str(PORTS[port]) in command


@pytest.mark.parametrize("name", ["apiserver", "controller-manager", "scheduler"])
def test_feature_gates_are_the_same_for_all_components(name: str) -> None:
    """With native gates every component of Kubernetes has all of them; with default gates none has any."""
    kind = components.BY_NAME[name]
    gates = "--feature-gates=" + ",".join(f"{gate}=true" for gate in NATIVE_GATES)
    assert gates in kind.command(context(ClusterSpec(gates="native")))
    assert "--feature-gates=One=true" in kind.command(context(ClusterSpec(further_gates=("One",))))
    assert not [part for part in kind.command(context(ClusterSpec())) if "gates" in part]


def test_native_apis_are_served_only_with_native_gates() -> None:
    """The API server enables the alpha versions together with the gates."""
    served = "--runtime-config=scheduling.k8s.io/v1alpha3=true,scheduling.k8s.io/v1beta1=true"
    assert served in commands.apiserver(context(ClusterSpec(gates="native")))
    assert served not in commands.apiserver(context(ClusterSpec()))


def test_authorization_is_on() -> None:
    """The API server authorizes by RBAC, and TLS uses the cluster's own certificate."""
    command = commands.apiserver(context(ClusterSpec()))
    assert "--authorization-mode=RBAC" in command
    assert "--tls-cert-file=/lab/server.crt" in command


def test_etcd_syncs_to_disk_only_if_the_spec_says_so() -> None:
    """Only tests of crashes of etcd need it."""
    assert "--unsafe-no-fsync" in commands.etcd(context(ClusterSpec()))
    assert "--unsafe-no-fsync" not in commands.etcd(context(ClusterSpec(fsync=True)))


def test_the_watch_cache_is_off_only_if_the_spec_says_so() -> None:
    """Without it, compaction of etcd ends watches while the API server runs."""
    assert "--watch-cache=false" in commands.apiserver(context(ClusterSpec(watch_cache=False)))
    assert not [part for part in commands.apiserver(context(ClusterSpec())) if "watch-cache" in part]


def test_load_settings_are_passed_only_when_set() -> None:
    """The API server keeps its default limits unless the spec has others."""
    flags = {"--max-requests-inflight=3000", "--max-mutating-requests-inflight=1500"}
    spec = ClusterSpec(max_requests_inflight=3000, max_mutating_requests_inflight=1500)
    assert flags <= set(commands.apiserver(context(spec)))
    assert not [part for part in commands.apiserver(context(ClusterSpec())) if "inflight" in part]


def test_node_lifecycle_is_off_by_default() -> None:
    """Leases and the controller that watches them come together."""
    off, on = context(ClusterSpec()), context(ClusterSpec(node_lifecycle=True))
    assert "--controllers=*,-node-lifecycle-controller" in commands.controller_manager(off)
    assert "--controllers=*" in commands.controller_manager(on)
    assert "--node-lease-duration-seconds=0" in commands.kwok(off)
    assert "--node-lease-duration-seconds=40" in commands.kwok(on)


def test_chosen_controllers_run_alone() -> None:
    """Without a choice all run."""
    chosen = context(ClusterSpec(controllers=("garbage-collector-controller", "deployment-controller")))
    flag = "--controllers=garbage-collector-controller,deployment-controller"
    assert flag in commands.controller_manager(chosen)


def test_writes_are_audited_only_if_the_spec_says_so() -> None:
    """The policy leaves out reads and bodies."""
    flags = ["--audit-policy-file=/lab/apiserver.yaml", "--audit-log-path=/lab/audit.log"]
    assert commands.apiserver(context(ClusterSpec(audit=True)))[-2:] == flags
    assert not [part for part in commands.apiserver(context(ClusterSpec())) if "audit" in part]
    rules = commands.audit_policy(context(ClusterSpec()))["rules"]
    assert rules == [
        {"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]},
        {"level": "None"},
    ]


def test_kube_scheduler_is_not_throttled() -> None:
    """It gets the client rate that a fair comparison needs, and no leader election."""
    config = commands.scheduler_config(context(ClusterSpec()))
    assert config["leaderElection"] == {"leaderElect": False}
    assert config["clientConnection"] == {"kubeconfig": "/lab/scheduler.kubeconfig", "qps": 5000, "burst": 5000}


def test_kwok_ignores_real_nodes() -> None:
    """It simulates annotated nodes only."""
    command = commands.kwok(context(ClusterSpec()))
    assert "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake" in command
    assert not [part for part in command if "manage-all-nodes" in part]
