"""Control planes of the versions of Kubernetes that have devices, with kube-scheduler beside ours."""

from collections.abc import Iterator

import pytest

from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

VERSIONS = ("1.37", "1.34")
CLAIM_CONTROLLERS = ("resourceclaim-controller", "garbage-collector-controller")


@pytest.fixture(scope="package", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Return the version of Kubernetes."""
    found: str = request.param
    return found


@pytest.fixture(scope="package")
def cluster(version: str) -> Iterator[Cluster]:
    """Run a cluster with kube-scheduler and the controllers that make and deallocate claims."""
    spec = ClusterSpec(
        kubernetes=version, components=("scheduler", "controller-manager"), controllers=CLAIM_CONTROLLERS
    )
    with Cluster(spec) as running:
        yield running
