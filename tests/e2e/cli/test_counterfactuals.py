"""What would help, made for real on an API server with our scheduler: the tree is placed."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.cli.situations_reader import SITUATIONS, target_of

from cpg_cli.analysis.assessment import assess
from cpg_cli.analysis.candidates.case import Counterfactual
from cpg_cli.analysis.counterfactuals import counterfactuals
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.listing import list_objects
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.cluster.targets import unit_of
from cpg_cli.options import ClusterOptions

if TYPE_CHECKING:
    from tests.e2e.cli.conftest import Space

    from cpg_lab.clusters import Cluster

pytestmark = pytest.mark.e2e


def shown(cluster: "Cluster", space: "Space", target: str) -> tuple[Counterfactual, ...]:
    """Return what would help a tree, by the objects that the API server has."""
    server = ApiServer(ClusterOptions(kubeconfig=str(cluster.kubeconfig)))
    scheduler = OfflineScheduler(list_objects(server).to_dump())
    found = assess(scheduler, unit_of(scheduler.cache, space.name, target))
    return counterfactuals(scheduler, found, seconds=60.0).found


@pytest.mark.parametrize("situation", SITUATIONS)
def test_each_change_places_the_tree(cluster: "Cluster", space_of: "Callable[[str], Space]", situation: str) -> None:
    """Each change is made alone, in a fresh namespace; the scheduler places the tree, also by the evictions shown."""
    target = target_of(situation)
    first = space_of(situation)
    kinds = [one.kind for one in shown(cluster, first, target)]
    first.clear()
    for number in range(len(kinds)):
        space = space_of(situation)
        change = shown(cluster, space, target)[number]
        space.make(change.changes)
        space.wait(partial(space.is_placed, target), f"{change.text}: a placed tree")
        space.clear()
