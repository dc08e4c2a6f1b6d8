"""YAML in documents and samples is valid for a real API server, the chart and the settings."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from cpg_api.integrations.custom import CustomKind
from cpg_api.integrations.policy import read_policy
from cpg_api.integrations.registry import OWNERS, owner_kinds
from cpg_api.integrations.trees import OwnerKind
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_lab import building
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec
from cpg_operator import settings as operator
from cpg_scheduler import settings as scheduler

ROOT = Path(__file__).parents[3]
CHART = ROOT / "charts" / "kube-cpg"
DOCUMENTS = [*sorted(ROOT.glob("docs/**/*.md")), ROOT / "README.md", *sorted(ROOT.glob("examples/*/README.md"))]
SAMPLES = sorted((ROOT / "manifests" / "samples").glob("*.yaml"))
_YAML = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Run a cluster with the kinds."""
    with Cluster(ClusterSpec()) as running:
        crds = str(ROOT / "manifests" / "crds")
        running.kubectl("apply", "-f", crds)
        running.access.wait_for_crds()
        yield running


def shown() -> list[tuple[str, str]]:
    """Return every YAML block of the documents with its position."""
    return [
        (f"{path.relative_to(ROOT)}:{text.count(chr(10), 0, found.start()) + 1}", found[1])
        for path in DOCUMENTS
        for text in [path.read_text("utf-8")]
        for found in _YAML.finditer(text)
    ]


def foreign_kinds() -> dict[str, OwnerKind]:
    """Return the kinds of owners that Kubernetes does not serve, and those that settings in a document describe."""
    settings = [plain for _, text in shown() for plain in yaml.safe_load_all(text) if "customIntegrations:" in text]
    custom = [msgspec.convert(one, CustomKind) for plain in settings for one in plain["customIntegrations"]]
    found = [*(kind for kind in OWNERS.values() if kind.group not in {"apps", "batch"}), *owner_kinds([], custom)]
    return {kind.kind: kind for kind in found}


FOREIGN = foreign_kinds()


def assert_has_tree(kind: OwnerKind, plain: object) -> None:
    """Check that an owner gets a tree: its CRD is not installed here."""
    owner = msgspec.convert(plain, kind.type)
    found = kind.shape(owner, read_policy(owner.metadata.annotations), frozenset({SCHEDULER_NAME}))
    assert found.spec is not None
    assert found.problems == ()


@pytest.mark.parametrize("text", [pytest.param(text, id=place) for place, text in shown()])
def test_yaml_in_a_document_is_valid(cluster: Cluster, tmp_path: Path, text: str) -> None:
    """Objects pass the API server with strict validation, values the chart's schema; owners of others give trees."""
    objects = [one for one in yaml.safe_load_all(text) if one]
    if objects[0].get("kind") == "ClusterTrainingRuntime":  # the JobSet of its TrainJobs is made from its template
        assert_has_tree(FOREIGN["JobSet"], objects[0]["spec"]["template"])
        return
    if objects[0].get("kind") in FOREIGN:
        assert_has_tree(FOREIGN[objects[0]["kind"]], objects[0])
        return
    if all("apiVersion" in one for one in objects):
        cluster.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", input=text)
        return
    (values,) = objects
    file = tmp_path / "values.yaml"
    file.write_text(text)
    helm = building.ensure(["helm"])["helm"]
    # There is no API server to ask which kinds are served.
    command = [str(helm), "template", str(CHART), "-f", str(file)]
    command += ["--set", "monitoring.force=true,admissionPolicy.force=true,image.repository=kube-cpg"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - built in code
    assert done.returncode == 0, done.stderr
    for part, module in (("scheduler", scheduler), ("operator", operator)):
        file.write_text(json.dumps(values.get(part, {}).get("settings", {})))
        module.load(file)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_is_accepted_by_the_api_server(cluster: Cluster, path: Path) -> None:
    """It can be created with strict validation."""
    cluster.kubectl("create", "--validate=strict", "-f", str(path))


def test_there_are_samples_of_every_kind() -> None:
    """Each of the three kinds has a file."""
    assert {path.stem for path in SAMPLES} == {"podgroup", "compositepodgroup", "workload"}
