"""Creation of many nodes. kubectl needs minutes for thousands; concurrent requests need seconds."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from cpg_client.bulk_create import create_all
from cpg_client.connection import Connection
from cpg_lab.errors import LabError
from cpg_lab.nodes import NodePool, check_names, manifest
from cpg_lab.probing import run_blocking

_MAX_REQUESTS_IN_FLIGHT = 32


def create_nodes(kubeconfig: Path, pools: Sequence[NodePool]) -> int:
    """Create all nodes of the pools; return how many."""
    check_names(pools)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    manifests = [manifest(pool, position, now=now) for pool in pools for position in pool.positions()]
    run_blocking(_create(kubeconfig, manifests))
    return len(manifests)


async def _create(kubeconfig: Path, manifests: Iterable[dict[str, object]]) -> None:
    async with Connection.from_kubeconfig(kubeconfig) as connection:
        objects = (("/api/v1/nodes", manifest) for manifest in manifests)
        outcome = await create_all(connection, objects, in_flight=_MAX_REQUESTS_IN_FLIGHT)
    if outcome.failures:
        first, total = outcome.failures[0].error, outcome.created + len(outcome.failures)
        raise LabError(f"{len(outcome.failures)} of {total} nodes were not created; the first: {first}")
