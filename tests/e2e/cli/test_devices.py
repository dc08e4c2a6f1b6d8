"""Devices: what simulate predicts, the scheduler does on a real API server, and claims name the same devices."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Space

    from cpg_lab.clusters import Cluster

EXAMPLES = Path(__file__).parents[3] / "examples"
OFFERED = (str(EXAMPLES / "nodes.yaml"), str(EXAMPLES / "10-devices" / "slices.yaml"))
Plain = dict[str, Any]

pytestmark = pytest.mark.e2e


@pytest.fixture
def space(cluster: "Cluster", space_of: "Callable[[str], Space]") -> "Iterator[Space]":
    """Return a namespace without objects, in a cluster with the nodes of the examples and their devices."""
    offered = [part for file in OFFERED for part in ("-f", file)]
    cluster.kubectl("apply", *offered)
    yield space_of("quorum")
    cluster.kubectl("delete", "--wait=false", *offered)


@pytest.fixture
def gang(tmp_path: Path) -> Callable[[int], str]:
    """Return what writes the gang of the example, with so many pods."""

    def write(pods: int) -> str:
        text = (EXAMPLES / "10-devices" / "objects.yaml").read_text("utf-8")
        objects = [one for one in yaml.safe_load_all(text) if one["metadata"]["name"] in {"one-gpu", "ring"}]
        for plain in objects:
            if plain["kind"] == "Job":
                plain["spec"] |= {"parallelism": pods, "completions": pods}
            elif plain["kind"] == "PodGroup":
                plain["spec"]["schedulingPolicy"]["gang"]["minCount"] = pods
        file = tmp_path / f"gang-{pods}.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        return str(file)

    return write


def found(cluster: "Cluster", space: "Space", plural: str) -> list[Plain]:
    """Return the objects of a kind in a namespace."""
    text = cluster.kubectl("get", plural, "-n", space.name, "-o", "json").stdout
    items: list[Plain] = msgspec.json.decode(text)["items"]
    return items


def test_a_gang_gets_the_devices_that_were_predicted(
    cluster: "Cluster", space: "Space", gang: Callable[[int], str]
) -> None:
    """On the same nodes; each claim is reserved for its pod."""
    file = gang(6)
    predicted = msgspec.json.decode(space.run("simulate", "-f", file, "-o", "json"))
    (tree,) = predicted["trees"]
    assert (predicted["fits"], len(predicted["claims"])) == (True, 6)
    cluster.kubectl("apply", "-n", space.name, "-f", file)
    space.wait(lambda: space.is_placed("ring"), "the gang")
    ring = [pod for pod in found(cluster, space, "pods") if pod["metadata"]["name"].startswith("ring")]
    assert Counter(pod["spec"]["nodeName"] for pod in ring) == tree["groups"][0]["nodes"]
    claims = found(cluster, space, "resourceclaims")
    results = [one["status"]["allocation"]["devices"]["results"] for one in claims]
    given = sorted(f"{one['driver']}/{one['pool']}/{one['device']}" for listed in results for one in listed)
    assert given == sorted(device for claim in predicted["claims"] for device in claim["devices"])
    users = sorted(user["name"] for one in claims for user in one["status"]["reservedFor"])
    assert users == sorted(pod["metadata"]["name"] for pod in ring)


def test_a_gang_without_enough_devices_says_how_many_are_free(
    cluster: "Cluster", space: "Space", gang: Callable[[int], str]
) -> None:
    """In the prediction, in the status, and in the answer of explain."""
    sentence = "32 of 32 devices of class gpu.example.com are free; 33 pods need 33"
    file = gang(33)
    assert sentence in " ".join(space.run("simulate", "-f", file).split())
    cluster.kubectl("apply", "-n", space.name, "-f", file)

    def shown() -> Plain:
        (group,) = [one for one in found(cluster, space, "podgroups.scheduling.cpg.dev") if "ring" in str(one)]
        devices: Plain = group.get("status", {}).get("attempt", {}).get("devices", {})
        return devices

    space.wait(lambda: bool(shown()), "the devices that are missing")
    assert shown() == {"deviceClass": "gpu.example.com", "free": 32, "total": 32, "text": sentence}
    assert f"DEVICES {sentence}" in " ".join(space.run("explain", "ring").split())
