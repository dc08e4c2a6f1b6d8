"""The table of components."""

from cpg_lab import components
from cpg_lab.specs import ClusterSpec
from cpg_lab.versions import COMPONENTS


def test_store_and_server_come_first() -> None:
    """Whatever was asked for, in whatever order, what the others lean on is started first."""
    spec = ClusterSpec(components=("kwok", "controller-manager"))
    assert [kind.name for kind in components.wanted(spec)] == ["etcd", "apiserver", "controller-manager", "kwok"]


def test_the_table_is_complete() -> None:
    """Each component that a version has is in the table, with ports of its own."""
    assert {name for table in COMPONENTS.values() for name in table} == set(components.BY_NAME)
    ports = [port for kind in components.ALL for port in kind.ports]
    assert len(ports) == len(set(ports))


def test_the_peer_is_no_administrator() -> None:
    """The peer scheduler passes the same flow control as ours: administrators are exempt from it."""
    peer = components.BY_NAME["scheduler"]
    assert peer.user == "system:kube-scheduler"
    assert "system:masters" not in peer.groups
