"""The same unit gets the same decision, in whatever order objects come, and deciding leaves no trace."""

from typing import Any
from unittest import mock

import hypothesis.strategies as st
import numpy as np
from hypothesis import assume, given
from msgspec.structs import replace

from cpg_engine.cluster import images, ledger, nodes
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.testing.oracle import Situation
from cpg_engine.testing.simulator import ClusterSimulator, RootUnit
from cpg_engine.testing.strategies import cases, situation, situations


def root_of(simulator: ClusterSimulator) -> RootUnit:
    """Return the tree in the simulator; discard the example if it has nothing to schedule."""
    roots = [root for root in simulator.roots() if root.tree is not None]
    assume(roots)
    return roots[0]


def state(ledger: Ledger) -> dict[str, Any]:
    """Return everything that a simulation may change, bit by bit, except for when it changed last."""
    arrays = {name: value.tobytes() for name, value in vars(ledger).items() if isinstance(value, np.ndarray)}
    del arrays["changed_at"]
    return arrays | {
        "pod_index": {found.index: dict(rows) for found, rows in ledger.pod_index._rows.items()},
        "carriers": set(ledger.pod_index.classes_with_terms),
        "claims": dict(ledger.attachments.users),
        "chosen": dict(ledger.volume_allocator.allocated),
        "held": dict(ledger._held),
        "journal": list(ledger._journal),
    }


@cases(500)
@given(situations(dependent=True))
def test_deciding_leaves_no_trace(situation: Situation) -> None:
    """The ledger is bit for bit what it was, whether the tree was placed or not."""
    simulator = ClusterSimulator.of(situation)
    root = root_of(simulator)
    simulator.unit(root)
    before = state(simulator.snapshot.ledger)
    simulator.decide(root)
    assert state(simulator.snapshot.ledger) == before


@cases(300)
@given(situations(dependent=True))
def test_updated_counts_equal_recomputed_ones(situation: Situation) -> None:
    """Counts that follow every placement and every rollback equal counts computed afterwards."""
    simulator = ClusterSimulator.of(situation)
    simulator.settle()
    pod_index = simulator.snapshot.ledger.pod_index
    for question, answer in pod_index._answers.items():
        assert answer.tolist() == pod_index._counted(question).tolist()


@cases(300)
@given(situations(dependent=True))
def test_two_decisions_are_equal(situation: Situation) -> None:
    """The first decision has no influence on the second, in the same snapshot or in another one."""
    simulator, other = ClusterSimulator.of(situation), ClusterSimulator.of(situation)
    root = root_of(simulator)
    first = simulator.decide(root)
    assert first == simulator.decide(root)
    assert first == other.decide(root)


@cases(500)
@given(situations(dependent=True), st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(found: Situation, random: Any) -> None:  # noqa: ANN401 - hypothesis's
    """Nodes, groups and pods may come in any order."""
    simulator = ClusterSimulator.of(found)
    expected = simulator.decide(root_of(simulator))
    nodes, pods = list(found.nodes), list(found.pods)
    groups = [node.group for node in found.tree.nodes]
    random.shuffle(nodes)
    random.shuffle(pods)
    tree = situation(nodes, groups, pods).tree
    shuffled = ClusterSimulator.of(replace(found, nodes=tuple(nodes), pods=tuple(pods), tree=tree))
    for key in sorted(shuffled.groups, reverse=True):
        shuffled.groups[key] = shuffled.groups.pop(key)
    assert shuffled.decide(root_of(shuffled)) == expected


@cases(300)
@given(situations(dependent=True))
def test_nodes_that_came_and_went_do_not_matter(situation: Situation) -> None:
    """A snapshot with reused rows and grown columns decides as a fresh one."""
    simulator, other = ClusterSimulator.of(situation), ClusterSimulator(ClusterSimulator.of(situation).options)
    for found in reversed(situation.nodes):
        other.put_node(replace(found, metadata=replace(found.metadata, name=f"old-{found.metadata.name}")))
    for found in situation.nodes:
        other.delete(f"old-{found.metadata.name}")
        other.put_node(found)
    for node in situation.tree.nodes:
        other.put_group(node.group)
    for pod in situation.pods:
        other.put_pod(pod)
    root = root_of(simulator)
    assert simulator.decide(root) == other.decide(root)


@cases(300)
@given(situations(dependent=True), situations(dependent=True))
def test_objects_that_came_and_went_do_not_matter(gone: Situation, situation: Situation) -> None:
    """A snapshot decides as a fresh one after others have gone, also if it drops at once what they have left."""
    at_once = -(10**6)
    with (
        mock.patch.multiple(ledger, MAX_STALE_COLUMNS=at_once, MAX_STALE_LABELS=at_once),
        mock.patch.object(nodes, "MAX_STALE_CODES", at_once),
        mock.patch.object(images, "MAX_STALE_NAMES", at_once),
    ):
        simulator, other = ClusterSimulator.of(situation), ClusterSimulator.of(gone)
        other.settle()
        for name in (*other.pods, *other.nodes, *[key.name for key in other.groups]):
            other.delete(name)
        for found in situation.nodes:
            other.put_node(found)
        for node in situation.tree.nodes:
            other.put_group(node.group)
        for pod in reversed(situation.pods):
            other.put_pod(pod)
        root = root_of(simulator)
        assert simulator.decide(root) == other.decide(root)
