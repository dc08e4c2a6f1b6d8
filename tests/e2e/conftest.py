"""Fixtures that run our processes with the rights and settings of the Deployments of the chart."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from cpg_lab.charts import ChartRelease
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments

CHART = Path(__file__).parents[2] / "charts" / "kube-cpg"
ONE_SCHEDULER = {"scheduler": {"replicas": 1}, "operator": {"enabled": False}}


class Installer:
    """Installs the chart into clusters, once per cluster and set of values. Its pods run as processes."""

    def __init__(self) -> None:
        """Start without releases."""
        self._releases: dict[tuple[str, str, bytes], ChartRelease] = {}

    def __call__(self, cluster: Cluster, values: Mapping[str, object], namespace: str = "kube-cpg") -> ChartRelease:
        """Return the release with these values; in another namespace it has no CRDs and no priority classes."""
        key = (cluster.url, namespace, msgspec.json.encode(values))
        if key not in self._releases:
            others = {"crds": {"install": False}, "priorityClass": {"create": False}}
            chosen = {**(others if namespace != "kube-cpg" else {}), **values}
            self._releases[key] = ChartRelease(cluster.access, CHART, chosen, namespace=namespace)
        return self._releases[key]

    @contextmanager
    def scheduler(
        self, cluster: Cluster, folder: Path, *, namespace: str = "kube-cpg", **values: object
    ) -> Iterator[Path]:
        """Run one scheduler and return its log; fail if an attempt fails or a request is forbidden."""
        release = self(cluster, {**ONE_SCHEDULER, **values}, namespace)
        with Deployments(cluster.access, release.deployments, folder=folder) as running:
            ((pod,),) = running.pods.values()
            yield pod.process.log
            assert pod.process.is_running, pod.process.tail()
        assert pod.process.exit_code == 0
        assert "attempt failed" not in pod.process.output()
        assert "forbidden: User" not in pod.process.output()


@pytest.fixture(scope="session")
def install() -> Installer:
    """Return the installer of the chart."""
    return Installer()
