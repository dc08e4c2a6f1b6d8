"""The examples, applied to a real API server."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from cpg_lab import workloads
from cpg_lab.clusters import Cluster
from cpg_lab.deployments import Deployments
from cpg_lab.errors import LabError
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(folder for folder in (ROOT / "examples").iterdir() if folder.is_dir())
COLUMNS = (
    "custom-columns=KIND:.kind,NAME:.metadata.name,PARENT:.spec.parentCompositePodGroupName,"
    "STATUS:.status.conditions[0].reason,MODE:.spec.disruptionMode"
)

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with the Job controller, and the kinds of other projects without their controllers."""
    spec = ClusterSpec(components=("controller-manager",))
    with Cluster(spec) as running:
        workloads.install_crds(workloads.of_names(["jobset", "lws", "ray"]), running.access, kubernetes=spec.kubernetes)
        yield running


@pytest.fixture(scope="module")
def operator(cluster: Cluster, install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployments]:
    """Run the operator of the chart, which some examples need; all need the kinds."""
    release = install(cluster, {"scheduler": {"enabled": False}})
    with Deployments(cluster.access, release.deployments, folder=tmp_path_factory.mktemp("operator")) as running:
        yield running
        ((pod,),) = running.pods.values()
        assert pod.process.is_running, pod.process.tail()


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_an_example_gives_its_expected_output(cluster: Cluster, folder: Path) -> None:
    """Its objects pass strict validation, and kubectl shows the content of expected.txt."""
    namespace = folder.name
    cluster.kubectl("create", "namespace", namespace)
    cluster.kubectl("apply", "--validate=strict", "-n", namespace, "-f", str(folder / "objects.yaml"))
    expected = (folder / "expected.txt").read_text()

    def shown() -> str:
        return cluster.kubectl("get", "workloads,cpg,podgroups", "-n", namespace, "-o", COLUMNS).stdout

    with contextlib.suppress(LabError):  # the comparison below shows more
        cluster.wait(lambda: shown() == expected, timeout=20, what="what the example shows")
    assert expected == shown()


def test_every_example_is_in_the_index() -> None:
    """The README of the examples lists each folder, and each folder has a README."""
    listed = (ROOT / "examples" / "README.md").read_text()
    assert EXAMPLES
    for folder in EXAMPLES:
        assert f"[{folder.name}]({folder.name})" in listed
        assert (folder / "README.md").read_text().startswith("# ")


def test_pods_of_an_example_join_their_groups(cluster: Cluster) -> None:
    """The Jobs of the tree create pods with the label of their group and our schedulerName."""

    def pods() -> list[str]:
        answer = cluster.kubectl(
            "get", "pods", "-n", "02-tree", "-l", "scheduling.cpg.dev/pod-group",
            "-o", "custom-columns=NAME:.spec.schedulerName", "--no-headers",
        )  # fmt: skip
        return answer.stdout.split()

    cluster.wait(lambda: len(pods()) == 10, timeout=30, what="the ten pods of the tree")
    assert set(pods()) == {"cpg-scheduler"}


def test_jobs_ignore_preempted_pods() -> None:
    """Every Job of an example has the podFailurePolicy that docs/concepts/preemption.md asks for."""
    rule = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    jobs = [
        one
        for path in (ROOT / "examples").glob("*/*.yaml")
        for one in yaml.safe_load_all(path.read_text())
        if one["kind"] == "Job"
    ]
    assert jobs
    assert all(one["spec"]["podFailurePolicy"] == {"rules": [rule]} for one in jobs)
