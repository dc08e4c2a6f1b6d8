"""What a search may use."""

from collections.abc import Callable

from msgspec import Struct

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters.registry import DynamicFilter, dynamic_filters
from cpg_engine.score_cache import ScoreCache
from cpg_engine.topology.domains import Topology
from cpg_engine.weights import Weights


def _go_on() -> None:
    """Do nothing: the default of ``pause``."""


class Snapshot(Struct, frozen=True, eq=False):
    """The ledger, and what is derived from it and kept between searches."""

    ledger: Ledger
    score_cache: ScoreCache
    topology: Topology
    dynamic_filters: tuple[DynamicFilter, ...] = ()
    pause: Callable[[], None] = _go_on
    """Called between two steps of a search. It may take time, but leaves everything here as it is."""


def new_snapshot(weights: Weights | None = None) -> Snapshot:
    """Return a snapshot without nodes and pods; both are then put into its ledger."""
    ledger = Ledger()
    weights = weights or Weights()
    return Snapshot(
        ledger=ledger,
        score_cache=ScoreCache(ledger, weights),
        topology=Topology(ledger),
        dynamic_filters=dynamic_filters(ledger, weights),
    )
