"""Specs of clusters are validated on construction."""

import msgspec
import pytest

from cpg_lab.errors import DescriptionError
from cpg_lab.nodes import NodePool
from cpg_lab.specs import ClusterSpec


def test_the_smallest_cluster_needs_three_programs() -> None:
    """etcd, API server and kubectl."""
    assert ClusterSpec().programs() == ("etcd", "kube-apiserver", "kubectl")


def test_components_add_their_programs() -> None:
    """Each of the cluster's version."""
    spec = ClusterSpec(components=("scheduler", "kwok"))
    assert set(spec.programs()) == {"etcd", "kube-apiserver", "kubectl", "kube-scheduler", "kwok"}
    assert "kube-scheduler-1.34" in ClusterSpec(kubernetes="1.34", components=("scheduler",)).programs()
    assert "kube-apiserver-1.30" in ClusterSpec(kubernetes="1.30", components=("kwok",)).programs()


def test_workloads_come_with_the_components_that_they_need() -> None:
    """Jobs and StatefulSets need the controller manager, and a TrainJob makes a JobSet; nothing starts twice."""
    assert ClusterSpec(workloads=("lws",)).started() == ("etcd", "apiserver", "controller-manager", "lws")
    spec = ClusterSpec(kubernetes="1.30", components=("controller-manager",), workloads=("trainer", "jobset"))
    assert spec.started() == ("etcd", "apiserver", "controller-manager", "jobset", "trainer")
    assert {"kube-controller-manager-1.30", "jobset", "trainer"} <= set(spec.programs())


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"kubernetes": "1.29"}, r"Kubernetes 1\.29 is not in the lab's table; it has 1\.37, 1\.34, 1\.30"),
        ({"gates": "all"}, "gates are default or native, not all"),
        ({"components": ("proxy",)}, "no component proxy; there are controller-manager, scheduler, kwok"),
        ({"kubernetes": "1.30", "gates": "native"}, r"native gates came after Kubernetes 1\.30"),
        ({"kubernetes": "1.30", "components": ("scheduler",)}, r"no scheduler of Kubernetes 1\.30"),
        ({"workloads": ("mpi",)}, "no workload controller mpi; there are jobset, lws, trainer, ray, kueue"),
        ({"components": ("jobset",)}, "no component jobset; there are controller-manager, scheduler, kwok"),
        ({"nodes": (NodePool(counts=(1,)), NodePool(counts=(1,)))}, "two nodes would be called node-1"),
    ],
)
def test_invalid_specs_are_rejected(fields: dict[str, object], complaint: str) -> None:
    """With a reason, before anything is built."""
    with pytest.raises(DescriptionError, match=complaint):
        ClusterSpec(**fields)  # type: ignore[arg-type]


def test_specs_round_trip_through_json() -> None:
    """The supervisor reads its spec from a file."""
    pool = NodePool.parse("2 racks x 2 nodes, label a=b, taint c=d:NoSchedule")
    spec = ClusterSpec(gates="native", components=("kwok",), workloads=("ray",), nodes=(pool,), fsync=True)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=ClusterSpec) == spec
