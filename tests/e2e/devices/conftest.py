"""Control planes of the versions of Kubernetes that have devices, with kube-scheduler beside ours."""

from collections.abc import Iterator

import pytest

from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

VERSIONS = ("1.37", "1.34")


@pytest.fixture(scope="package", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    """Return the version of Kubernetes."""
    found: str = request.param
    return found


@pytest.fixture(scope="package")
def cluster(version: str) -> Iterator[Cluster]:
    """Run a cluster with kube-scheduler and the controllers that make and deallocate claims."""
    components = ("scheduler", "controller-manager")
    controllers = ("resourceclaim-controller", "garbage-collector-controller")
    with Cluster(ClusterSpec(kubernetes=version, components=components, controllers=controllers)) as running:
        yield running
