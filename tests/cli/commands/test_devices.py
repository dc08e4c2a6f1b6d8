"""Devices in simulations: what claims get, and what becomes of them when nodes and pods come and go."""

from pathlib import Path

import pytest
from tests.cli.golden_files import assert_golden
from tests.cli.invoking import CommandRunner

from cpg_api.decoding import decode

CLUSTER = str(Path(__file__).parents[1] / "clusters" / "devices.yaml")
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: more, annotations: {scheduling.cpg.dev/required-topology: rack}}
spec:
  completionMode: Indexed
  parallelism: %s
  completions: %s
  template:
    spec:
      schedulerName: cpg-scheduler
      restartPolicy: Never
      containers: [{name: main, resources: {requests: {cpu: "1"}, claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
"""


def written(folder: Path, *documents: str) -> str:
    """Return a file with documents."""
    path = folder / "objects.yaml"
    path.write_text("---\n".join(documents))
    return str(path)


@pytest.mark.parametrize(("pods", "code"), [(2, 0), (3, 1)])
def test_claims_of_a_job_get_the_devices_that_are_free(
    kubectl_cpg: CommandRunner, tmp_path: Path, pods: int, code: int
) -> None:
    """Of four GPUs two are free; a gang of three learns how many there are."""
    file = written(tmp_path, TEMPLATE, JOB % (pods, pods))
    found = kubectl_cpg("simulate", "-f", file, "--cluster", CLUSTER)
    assert (found.code, found.err) == (code, "")
    assert_golden(f"simulate/devices-{pods}.txt", found.out)


def test_json_has_the_devices_and_consumers_of_claims(kubectl_cpg: CommandRunner, tmp_path: Path) -> None:
    """For scripts."""
    file = written(tmp_path, TEMPLATE, JOB % (1, 1))
    found = decode(kubectl_cpg("simulate", "-f", file, "--cluster", CLUSTER, "-o", "json").out)
    assert found["claims"] == [
        {"name": "default/more-0-gpu", "devices": ["gpu.example.com/n2/gpu-0"], "consumers": ["more-0"]}
    ]


def test_a_template_that_is_in_no_file_is_named(kubectl_cpg: CommandRunner, tmp_path: Path) -> None:
    """Its claims are not made, so the pods wait for them."""
    found = kubectl_cpg("simulate", "-f", written(tmp_path, JOB % (1, 1)), "--cluster", CLUSTER)
    text = " ".join(found.out.split())
    assert found.code == 1
    assert "claims of ResourceClaimTemplate gpu are not made: it is not in the files" in text
    assert 'waiting for the ResourceClaim of "gpu" to be created' in text


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        ("devices-without-node", ["train", "--without", "node/n1"], 0),
        ("devices-add-nodes", ["late", "--set", "late.minCount=1", "--add-nodes", "1 x rack=r2", "--cordon", "n2"], 0),
    ],
)
def test_devices_come_and_go_with_nodes(kubectl_cpg: CommandRunner, name: str, options: list[str], code: int) -> None:
    """The claims of pods that are made anew are free to be allocated elsewhere, and new nodes have new devices."""
    found = kubectl_cpg("what-if", *options, "--cluster", CLUSTER)
    assert found.code == code
    assert_golden(f"what-if/{name}.txt", found.out)
