"""A real API server with both APIs of groups."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

CRDS = Path(__file__).parents[3] / "manifests" / "crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Run an API server of 1.37 with both APIs of groups."""
    with Cluster(ClusterSpec(gates="native")) as running:
        yield running


@pytest.fixture(scope="session")
def real(cluster: Cluster) -> Iterator[BlockingClient]:
    """Return a client of the API server."""
    with BlockingClient(cluster.access) as client:
        definitions = [yaml.safe_load(file.read_text()) for file in sorted(CRDS.glob("*.yaml"))]
        names = [client.create(DEFINITIONS, one)["metadata"]["name"] for one in definitions]
        cluster.wait(lambda: all(_is_served(client, name) for name in names), what="the custom resources")
        yield client


def _is_served(client: BlockingClient, name: str) -> bool:
    plural, group = name.split(".", 1)
    return client.find(f"/apis/{group}/v1alpha3/{plural}") is not None and _in_openapi(client, group)


def _in_openapi(client: BlockingClient, group: str) -> bool:
    found = client.find(f"/openapi/v3/apis/{group}/v1alpha3")
    return found is not None and len(found["components"]["schemas"]) > 0
