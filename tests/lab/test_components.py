"""The table of components."""

from cpg_lab import components
from cpg_lab.specs import ClusterSpec
from cpg_lab.versions import COMPONENTS


def test_etcd_and_the_api_server_start_first() -> None:
    """Whatever the spec lists, in whatever order."""
    spec = ClusterSpec(components=("kwok", "controller-manager"))
    assert [kind.name for kind in components.of_spec(spec)] == ["etcd", "apiserver", "controller-manager", "kwok"]


def test_the_table_is_complete() -> None:
    """Each component of a version is in the table, with ports of its own."""
    assert {name for table in COMPONENTS.values() for name in table} == set(components.BY_NAME)
    ports = [port for kind in components.ALL for port in kind.ports]
    assert len(ports) == len(set(ports))


def test_webhooks_are_checked_on_a_port_of_their_own() -> None:
    """LeaderWorkerSet says that it is ready before it serves its webhooks."""
    lws = components.BY_NAME["lws"]
    assert lws.ports == ("lws", "lws-webhook")
    assert lws.webhook.startswith("/validate-")
    assert components.BY_NAME["ray"].ports == ("ray",)


def test_kube_scheduler_is_not_an_administrator() -> None:
    """Administrators are exempt from flow control, to which ours is subject."""
    peer = components.BY_NAME["scheduler"]
    assert peer.user == "system:kube-scheduler"
    assert "system:masters" not in peer.groups
