"""Bounds may let through what later fails, and never reject what could be placed."""

import hypothesis.strategies as st
from hypothesis import assume, given
from msgspec.structs import replace

from cpg_engine.gangs.bounds import could_hold
from cpg_engine.gangs.needs import Needs
from cpg_engine.testing.oracle import Situation, find
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_engine.testing.strategies import cases, situations


@cases(500)
@given(situations(), st.sampled_from(["zone", "rack", "disk"]))
def test_a_domain_that_holds_a_tree_passes_the_bound(situation: Situation, key: str) -> None:
    """Where the oracle places the tree on the nodes of one domain, the bound lets the domain pass."""
    simulator = ClusterSimulator.of(situation)
    roots = [root for root in simulator.roots() if root.tree is not None]
    assume(roots)
    needs, snapshot = Needs(simulator.unit(roots[0])), simulator.snapshot
    partition = snapshot.topology.partition(snapshot.topology.whole(), key)
    room = {found: partition.sums(snapshot.score_cache.of(kind).slots()) for found, kind in needs.classes.items()}
    passed = could_hold(needs, 0, room, len(partition.scopes))
    for scope, passes in zip(partition.scopes, passed.tolist(), strict=True):
        value = scope.chain[-1].value
        inside = tuple(node for node in situation.nodes if node.metadata.labels.get(key) == value)
        assert passes or find(replace(situation, nodes=inside)) is None
