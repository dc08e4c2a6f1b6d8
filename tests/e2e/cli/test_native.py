"""Native groups of Kubernetes: trees and explanations are the same."""

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from cpg_cli.root import root
from cpg_client.resources import NATIVE_POD_GROUPS_ALPHA, PODS
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run an API server with native groups, and no scheduler: nothing is written into any status."""
    with Cluster(ClusterSpec(gates="native")) as running, BlockingClient(running.access) as client:
        group = {"metadata": {"name": "train"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}}
        client.create(NATIVE_POD_GROUPS_ALPHA.path("default"), group)
        for number in range(2):
            spec = {
                "schedulerName": "cpg-scheduler",
                "containers": [{"name": "main", "image": "main"}],
                "schedulingGroup": {"podGroupName": "train"},
            }
            client.create(PODS.path("default"), {"metadata": {"name": f"train-{number}"}, "spec": spec})
        yield running


def run(cluster: Cluster, *arguments: str) -> str:
    """Return the output of a command."""
    command = [*arguments, "--kubeconfig", str(cluster.kubeconfig)]
    return CliRunner().invoke(root, command, catch_exceptions=False, standalone_mode=False).stdout


def test_a_tree_is_shown(cluster: Cluster) -> None:
    """With its pods, which name their group by the native field."""
    assert run(cluster, "tree", "train").split()[8:12] == ["pg/train", "Unknown", "3", "0/2"]


def test_a_tree_is_explained(cluster: Cluster) -> None:
    """By the user's own view: the scheduler has not attempted it."""
    text = run(cluster, "explain", "train")
    assert "BLOCKED AT  train: has 2 of 3 pods" in text
    assert "FITS IF     train minCount 3 -> 2" not in text  # there is no node
    assert "NEXT        create 1 more pod for PodGroup default/train" in text


def test_nothing_is_written(cluster: Cluster) -> None:
    """The status says so, and what to check."""
    assert "nothing is written about it yet" in run(cluster, "explain", "train", "--source", "status")
