"""Caches and facts of small clusters."""

from collections.abc import Sequence

from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup
from cpg_cli.cluster.facts import ClusterFacts
from cpg_cli.cluster.objects import ClusterObjects
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_client.flavours import CRD
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.cache.cluster import ClusterCache

BLOCK, RACK, GPU = "topology.cpg.dev/block", "topology.cpg.dev/rack", "nvidia.com/gpu"


def objects_of(nodes: Sequence[Node] = (), groups: Sequence[Group] = (), pods: Sequence[Pod] = ()) -> ClusterObjects:
    """Return the objects of a cluster; the kinds of ours are served."""
    found = ClusterObjects()
    found.by_kind[Node] = list(nodes)
    found.by_kind[Pod] = list(pods)
    found.groups[CRD] = {
        kind: [one for one in groups if isinstance(one, kind)] for kind in (PodGroup, CompositePodGroup)
    }
    return found


def cache_of(nodes: Sequence[Node] = (), groups: Sequence[Group] = (), pods: Sequence[Pod] = ()) -> ClusterCache:
    """Return the cache of a cluster."""
    return OfflineScheduler(objects_of(nodes, groups, pods).to_dump()).cache


def facts_of(nodes: Sequence[Node] = (), groups: Sequence[Group] = (), pods: Sequence[Pod] = ()) -> ClusterFacts:
    """Return the facts about a cluster without an installation."""
    facts = ClusterFacts(now=0.0, objects=objects_of(nodes, groups, pods))
    facts.groups = [one.metadata for one in groups]
    return facts


def ours(name: str, group: str | None = None, *, gpu: int = 0, node_name: str = "", phase: str = "") -> Pod:
    """Return a pod with our scheduler."""
    found = pod(name, group=group, cpu=1, node_name=node_name)
    (container,) = found.spec.containers or ()
    requests = {**(container.resources.requests or {}), GPU: gpu}
    resources = replace(container.resources, requests=requests)
    spec = replace(found.spec, containers=(replace(container, resources=resources),))
    return replace(found, spec=spec, status=replace(found.status, phase=phase))


def racks(blocks: int = 2, per_block: int = 2, per_rack: int = 2) -> list[Node]:
    """Return nodes of 8 CPUs and 4 GPUs in racks of blocks."""
    return [
        node(
            f"n-{block}-{rack}-{number}",
            cpu=8,
            more={GPU: 4},
            labels={BLOCK: f"block-{block}", RACK: f"rack-{block}-{rack}"},
        )
        for block in range(1, blocks + 1)
        for rack in range(1, per_block + 1)
        for number in range(1, per_rack + 1)
    ]
