"""A cluster's spec is checked when it is made."""

import msgspec
import pytest

from cpg_lab.errors import DescriptionError
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec


def test_the_least_cluster_needs_three_programs() -> None:
    """Store, API server and kubectl; nothing is built that was not asked for."""
    assert ClusterSpec().programs() == ("etcd", "kube-apiserver", "kubectl")


def test_components_bring_their_programs() -> None:
    """Each component that is asked for brings its program, of the cluster's version."""
    spec = ClusterSpec(components=("scheduler", "kwok"))
    assert set(spec.programs()) == {"etcd", "kube-apiserver", "kubectl", "kube-scheduler", "kwok"}
    assert "kube-apiserver-1.30" in ClusterSpec(kubernetes="1.30", components=("kwok",)).programs()


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"kubernetes": "1.29"}, r"Kubernetes 1\.29 is not in the lab's table; it has 1\.37, 1\.30"),
        ({"gates": "all"}, "gates are default or native, not all"),
        ({"components": ("proxy",)}, "no component proxy; there are controller-manager, scheduler, kwok"),
        ({"kubernetes": "1.30", "gates": "native"}, r"native gates came after Kubernetes 1\.30"),
        ({"kubernetes": "1.30", "components": ("scheduler",)}, r"no scheduler of Kubernetes 1\.30"),
        ({"nodes": (NodePool(counts=(1,)), NodePool(counts=(1,)))}, "two nodes would be called node-1"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, object], complaint: str) -> None:
    """A spec that no cluster can meet is an error with a reason, before anything is built."""
    with pytest.raises(DescriptionError, match=complaint):
        ClusterSpec(**fields)  # type: ignore[arg-type]


def test_it_survives_being_written_down() -> None:
    """A spec goes through its file unchanged: that is how the supervisor gets it."""
    pool = NodePool.parse("2 racks x 2 nodes, label a=b, taint c=d:NoSchedule")
    spec = ClusterSpec(gates="native", components=("kwok",), nodes=(pool,), fsync=True)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=ClusterSpec) == spec
