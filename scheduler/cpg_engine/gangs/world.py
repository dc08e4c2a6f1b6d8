"""What a search may use."""

from msgspec import Struct

from cpg_engine.boards import Boards
from cpg_engine.filters.registry import DynamicFilter, dynamic_filters
from cpg_engine.snapshot.ledger import Ledger
from cpg_engine.topology.domains import Topology
from cpg_engine.weights import Weights


class World(Struct, frozen=True, eq=False):
    """The ledger, and what is derived from it and kept between searches."""

    ledger: Ledger
    boards: Boards
    topology: Topology
    dynamic: tuple[DynamicFilter, ...] = ()


def new_world(weights: Weights | None = None) -> World:
    """Return a world without nodes or pods; the ledger is then told of both."""
    ledger = Ledger()
    weights = weights or Weights()
    return World(
        ledger=ledger,
        boards=Boards(ledger, weights),
        topology=Topology(ledger),
        dynamic=dynamic_filters(ledger, weights),
    )
