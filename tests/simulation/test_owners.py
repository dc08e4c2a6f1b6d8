"""The controllers of pods."""

from itertools import count

from cpg_client.resources import NAMESPACES, PODS
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.nights.manifests import NAMESPACE
from cpg_simulation.nights.plan import GroupPlan, TreePlan
from cpg_simulation.world.cluster_client import ClusterClient
from cpg_simulation.world.owners import OwnedTree, Owners

LEAF = GroupPlan(name="leaf", gang=1, pods=2)


def names_after_a_deletion(*, has_stable_names: bool) -> list[str]:
    """Return the names of the pods of a tree that has lost its first one."""
    uids = count()
    client = ClusterClient(ApiServer(now=lambda: 0.0, new_uid=lambda: f"uid-{next(uids)}"))
    client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    owners = Owners(client, "crd")
    tree = OwnedTree(TreePlan(name="tree", groups=(LEAF,), has_stable_names=has_stable_names), {"leaf": 2})
    owners.trees["tree"] = tree
    owners.sync()
    first = min(pod["metadata"]["name"] for pod in client.pods())
    client.delete(PODS, first, grace=0)
    owners.sync()
    return sorted(pod["metadata"]["name"] for pod in client.pods())


def test_a_pod_is_replaced_by_one_of_another_name() -> None:
    """As by the controller of a Job."""
    assert names_after_a_deletion(has_stable_names=False) == ["leaf-p2", "leaf-p3"]


def test_a_pod_is_replaced_by_one_of_its_name() -> None:
    """As by the controller of a StatefulSet."""
    assert names_after_a_deletion(has_stable_names=True) == ["leaf-p0", "leaf-p1"]


def test_a_stopped_controller_replaces_no_pod() -> None:
    """As while no kube-controller-manager runs."""
    uids = count()
    client = ClusterClient(ApiServer(now=lambda: 0.0, new_uid=lambda: f"uid-{next(uids)}"))
    client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    owners = Owners(client, "crd")
    owners.trees["tree"] = OwnedTree(TreePlan(name="tree", groups=(LEAF,)), {"leaf": 2})
    for owners.is_stopped in (True, False):
        assert list(client.pods()) == []
        owners.sync()
    assert len(list(client.pods())) == 2
