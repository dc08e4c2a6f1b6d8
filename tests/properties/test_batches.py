"""A batch of identical pods goes where they would have gone one by one, and where simple arithmetic says."""

import hypothesis.strategies as st
import numpy as np
from hypothesis import given

from cpg_api.core.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from cpg_api.core.node import Node, Taint
from cpg_api.core.pod import Pod
from cpg_engine.score_cache import choose_nodes
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.strategies import cases

SOFT = Taint(key="soft", effect="PreferNoSchedule")
MIB = 2**20
PREFERS_SSD = Affinity(
    node_affinity=NodeAffinity(
        preferred_during_scheduling_ignored_during_execution=(
            PreferredSchedulingTerm(
                weight=5,
                preference=NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key="ssd", operator="Exists"),)),
            ),
        )
    )
)
SIZES = st.tuples(st.integers(0, 4000), st.integers(0, 4096), st.sampled_from([2, 5, 110]))
FLAGS = st.tuples(st.booleans(), st.booleans())
CLUSTERS = st.lists(st.tuples(SIZES, FLAGS), min_size=1, max_size=6).map(
    lambda kinds: [
        node(
            f"n{number}",
            cpu=f"{cpu}m",
            memory=f"{memory}Mi",
            pods=pods,
            labels={"ssd": ""} if ssd else {},
            taints=(SOFT,) if soft else (),
        )
        for number, ((cpu, memory, pods), (ssd, soft)) in enumerate(kinds)
    ]
)
SHAPES = st.builds(
    lambda cpu, memory, affinity: pod("p", cpu=cpu, memory=memory, affinity=affinity),
    st.sampled_from([None, "100m", "333m", "1"]),
    st.sampled_from([None, "64Mi", "500Mi"]),
    st.sampled_from([None, PREFERS_SSD]),
)


def snapshot_of(nodes: list[Node]) -> Snapshot:
    """Return a snapshot with these nodes and a pod on the first of them."""
    snapshot = new_snapshot()
    for found in nodes:
        snapshot.ledger.put_node(found)
    snapshot.ledger.put_pod(pod("first", cpu="250m", memory="100Mi"), "n0")
    return snapshot


def one_by_one(snapshot: Snapshot, shape: Pod, count: int) -> list[str]:
    """Return where the pods go if each is placed before the next is scored."""
    pod_class = snapshot.ledger.class_of(shape)
    rows = snapshot.topology.whole().rows
    names = []
    for _ in range(count):
        chosen = choose_nodes(snapshot.score_cache.of(pod_class), rows, 1)
        if len(chosen):
            snapshot.ledger.place(pod_class, chosen)
            names.append(snapshot.ledger.cluster.name(int(chosen[0])))
    return names


class Naive:
    """Nodes as plain numbers: the arithmetic of kube-scheduler's scores, implemented once more."""

    def __init__(self, nodes: list[Node], shape: Pod) -> None:
        """Read the numbers off the objects; one pod is on the first node."""
        requests = (shape.spec.containers or ())[0].resources.requests or {}
        self.needs = [milli(str(requests.get("cpu", 0))), mebi(str(requests.get("memory", 0)))]
        self.scored = [self.needs[0] or 100, self.needs[1] or 200]
        self.capacity = {}
        self.used = {found.metadata.name: [0, 0, 0] for found in nodes}
        self.taken = {found.metadata.name: [0, 0] for found in nodes}
        self.used["n0"], self.taken["n0"] = [250, 100, 1], [250, 100]
        for found in nodes:
            offered = found.status.allocatable or {}
            amounts = milli(str(offered["cpu"])), mebi(str(offered["memory"])), int(offered["pods"])
            self.capacity[found.metadata.name] = amounts
        self.fixed = self._fixed(nodes, prefers=shape.spec.affinity is not None)

    def best(self) -> str | None:
        """Return the node for the next pod, and place it there."""
        fits = [name for name in self.capacity if self._fits(name)]
        if not fits:
            return None
        name = min(fits, key=lambda found: (-self._score(found), found))
        self.used[name] = [
            self.used[name][0] + self.needs[0],
            self.used[name][1] + self.needs[1],
            self.used[name][2] + 1,
        ]
        self.taken[name] = [taken + more for taken, more in zip(self.taken[name], self.scored, strict=True)]
        return name

    def _fits(self, name: str) -> bool:
        wanted = (*self.needs, 1)
        return all(
            not more or used + more <= capacity
            for more, used, capacity in zip(wanted, self.used[name], self.capacity[name], strict=True)
        )

    def _score(self, name: str) -> int:
        capacities = self.capacity[name][:2]
        counted = [place for place in (0, 1) if capacities[place]]
        free = [capacities[place] - self.taken[name][place] - self.scored[place] for place in counted]
        left = [max(found, 0) * 100 // capacities[place] for found, place in zip(free, counted, strict=True)]
        least = sum(left) // max(len(counted), 1)
        return self.fixed[name] + least + self._balance(name, counted)

    def _balance(self, name: str, counted: list[int]) -> int:
        """Return half of what the pod adds to the evenness of usage, around 75; zero for a pod without requests."""
        if not any(self.needs):
            return 0
        before, after = (
            [min((self.used[name][place] + more[place]) / self.capacity[name][place], 1) for place in counted]
            for more in ([0, 0], self.needs)
        )
        return 50 + (50 + evenness(after) - evenness(before)) // 2

    @staticmethod
    def _fixed(nodes: list[Node], *, prefers: bool) -> dict[str, int]:
        """Return what depends on the node alone: soft taints weigh 3, preferences 2, both scaled to the largest."""
        any_soft = any(found.spec.taints for found in nodes)
        any_ssd = any("ssd" in found.metadata.labels for found in nodes)
        return {
            found.metadata.name: 3 * (0 if any_soft and found.spec.taints else 100)
            + 2 * (100 if prefers and any_ssd and "ssd" in found.metadata.labels else 0)
            for found in nodes
        }


def evenness(shares: list[float]) -> int:
    """Return 100 where both are used to the same degree, or there is only one."""
    return int((1 - abs(shares[0] - shares[-1]) / 2) * 100) if shares else 100


def milli(text: str) -> int:
    """Return thousandths of CPU."""
    return int(text[:-1]) if text.endswith("m") else int(text) * 1000


def mebi(text: str) -> int:
    """Return mebibytes."""
    return int(text.removesuffix("Mi"))


@cases(500)
@given(CLUSTERS, SHAPES, st.integers(0, 40))
def test_a_batch_is_as_one_by_one(nodes: list[Node], shape: Pod, count: int) -> None:
    """Placing many at once and placing one after the other chooses the same nodes in the same order."""
    snapshot = snapshot_of(nodes)
    pod_class = snapshot.ledger.class_of(shape)
    rows = choose_nodes(snapshot.score_cache.of(pod_class), snapshot.topology.whole().rows, count)
    batch = [snapshot.ledger.cluster.name(int(row)) for row in np.asarray(rows)]
    assert batch == one_by_one(snapshot, shape, count)


@cases(500)
@given(CLUSTERS, SHAPES)
def test_the_best_node_is_the_best_by_simple_arithmetic(nodes: list[Node], shape: Pod) -> None:
    """Every pod goes to the node that the documented scores and then the name put first."""
    naive = Naive(nodes, shape)
    expected = [name for name in (naive.best() for _ in range(8)) if name is not None]
    assert one_by_one(snapshot_of(nodes), shape, 8) == expected
