"""The ledger compared with a model that counts everything again, whatever comes in whatever order."""

from collections import Counter

import hypothesis.strategies as st
import numpy as np
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from cpg_api.core.node import Node
from cpg_api.core.pod import Container, Pod
from cpg_api.core.resources import ResourceList, ResourceRequirements
from cpg_api.quantity import amount
from cpg_engine.cluster.axes import UNOFFERED_NAME
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.strategies import cases

NAMES = st.sampled_from(["n1", "n2", "n3"])
UIDS = st.sampled_from(["p1", "p2", "p3", "p4"])
GPU = "example.com/gpu"
NIC = "example.com/nic"
AMOUNTS = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "100m", "2"]),
        "memory": st.just("1Gi"),
        GPU: st.integers(0, 2),
        NIC: st.integers(0, 1),
    },
)


def requesting(name: str, amounts: dict[str, str | int]) -> Pod:
    """Return a pod that requests these amounts."""
    container = Container(name="main", resources=ResourceRequirements(requests=dict(amounts)))
    return pod(name, containers=(container,))


def by_name(ledger: Ledger, row: list[int]) -> dict[str, int]:
    """Return a row by the names of its columns, of which all names differ."""
    return dict(zip(ledger.classes.axis.names, row, strict=True))


def amounts_at(ledger: Ledger, row: int) -> tuple[dict[str, int], dict[str, int]]:
    """Return what is used of a node and what it offers."""
    return by_name(ledger, ledger.used[row].tolist()), by_name(ledger, ledger.allocatable[row].tolist())


def vector_of(ledger: Ledger, found: Pod) -> dict[str, int]:
    """Return the requests of the class of a pod."""
    return by_name(ledger, ledger.classes.vector_of(ledger.class_of(found)).tolist())


class LedgerMachine(RuleBasedStateMachine):
    """Nodes and pods come, change and go; simulations begin and are rolled back."""

    marks: Bundle[tuple[int, int]] = Bundle("marks")

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.ledger = Ledger()
        self.nodes: dict[str, Node] = {}
        self.offered = {"cpu", "memory", "pods"}
        self.pods: dict[str, tuple[Pod, str]] = {}
        self.simulated: list[tuple[Pod, list[str]]] = []

    @rule(name=NAMES, amounts=AMOUNTS, label=st.sampled_from(["a", "b", None]))
    def put_node(self, name: str, amounts: dict[str, str | int], label: str | None) -> None:
        """Add a node, or change it."""
        self._end_simulation()
        more: ResourceList = {key: found for key, found in amounts.items() if key != "cpu"}
        found = node(name, cpu=str(amounts.get("cpu", "1")), more=more, labels={"rack": label} if label else {})
        self.nodes[name] = found
        self.offered |= amounts.keys()
        self.ledger.put_node(found)

    @rule(name=NAMES)
    def remove_node(self, name: str) -> None:
        """Remove a node; its pods stay held."""
        self._end_simulation()
        self.nodes.pop(name, None)
        self.ledger.remove_node(name)

    @rule(uid=UIDS, name=NAMES, amounts=AMOUNTS)
    def put_pod(self, uid: str, name: str, amounts: dict[str, str | int]) -> None:
        """Add a pod, change it or move it."""
        self._end_simulation()
        found = requesting(uid, amounts)
        self.pods[uid] = (found, name)
        self.ledger.put_pod(found, name)

    @rule(uid=UIDS)
    def remove_pod(self, uid: str) -> None:
        """Remove a pod."""
        self._end_simulation()
        self.pods.pop(uid, None)
        self.ledger.remove_pod(requesting(uid, {}).metadata.uid)

    @rule(target=marks, names=st.lists(NAMES, max_size=4), amounts=AMOUNTS)
    def place(self, names: list[str], amounts: dict[str, str | int]) -> tuple[int, int]:
        """Place identical pods on some nodes, perhaps several on one."""
        mark = (self.ledger.mark(), len(self.simulated))
        there = [name for name in names if name in self.nodes]
        found = requesting("tried", amounts)
        rows = np.array([self.ledger.cluster.row_of[name] for name in there], dtype=np.intp)
        self.ledger.place(self.ledger.class_of(found), rows)
        self.simulated.append((found, there))
        return mark

    @rule(mark=consumes(marks))
    def rollback(self, mark: tuple[int, int]) -> None:
        """Roll back to a mark; nothing of what came after it may be left."""
        journal, simulated = mark
        self.ledger.rollback(journal)
        del self.simulated[simulated:]

    @invariant()
    def counts_every_pod(self) -> None:
        """Every node has exactly what the model says, and offers its allocatable amounts."""
        names = self.ledger.classes.axis.names
        for name, found in self.nodes.items():
            row = self.ledger.cluster.row_of[name]
            used = dict(zip(names, self.ledger.used[row].tolist(), strict=True))
            offered = dict(zip(names, self.ledger.allocatable[row].tolist(), strict=True))
            assert {key: number for key, number in used.items() if number} == self._used(name)
            wanted = {key: amount(key, text) for key, text in (found.status.allocatable or {}).items()}
            assert {key: number for key, number in offered.items() if number} == +Counter(wanted)

    @invariant()
    def leaves_no_trace_in_free_rows(self) -> None:
        """Rows without a node are all zero, and labels are those of the nodes."""
        empty = ~self.ledger.cluster.alive
        assert not self.ledger.used[empty].any()
        assert not self.ledger.allocatable[empty].any()
        assert not self.ledger.scored[empty].any()
        column = self.ledger.cluster.label("rack")
        for name, found in self.nodes.items():
            code = int(column.codes[self.ledger.cluster.row_of[name]])
            assert found.metadata.labels.get("rack") == (None if code < 0 else column.values[code])

    @invariant()
    def does_not_depend_on_the_order_of_arrival(self) -> None:
        """Compare with ledgers that got all nodes before all pods, or after them: they are the same, bit for bit."""
        if self.simulated:
            return
        for nodes_first in (True, False):
            other = self._built_at_once(nodes_first=nodes_first)
            for name in self.nodes:
                ours, theirs = self.ledger.cluster.row_of[name], other.cluster.row_of[name]
                assert amounts_at(self.ledger, ours) == amounts_at(other, theirs)
                assert np.array_equal(self.ledger.scored[ours], other.scored[theirs])
            for found, _ in self.pods.values():
                assert vector_of(self.ledger, found) == vector_of(other, found)

    def _built_at_once(self, *, nodes_first: bool) -> Ledger:
        """Return a new ledger with the same objects; a node that is gone again has offered the resources of all."""
        ledger = Ledger()
        steps = [self._put_all_nodes, self._put_all_pods]
        for step in steps if nodes_first else reversed(steps):
            step(ledger)
        return ledger

    def _put_all_nodes(self, ledger: Ledger) -> None:
        ledger.put_node(node("gone", more=dict.fromkeys(self.offered - {"cpu", "memory", "pods"}, 1)))
        for found in self.nodes.values():
            ledger.put_node(found)
        ledger.remove_node("gone")

    def _put_all_pods(self, ledger: Ledger) -> None:
        for found, home in self.pods.values():
            ledger.put_pod(found, home)

    def _used(self, name: str) -> Counter[str]:
        """Count everything on a node again."""
        total: Counter[str] = Counter()
        bound = [found for found, at in self.pods.values() if at == name]
        tried = [found for found, there in self.simulated for at in there if at == name]
        for found in (*bound, *tried):
            requests = (found.spec.containers or ())[0].resources.requests or {}
            total.update({key: amount(key, text) for key, text in requests.items() if key in self.offered})
            total["pods"] += 1
            total[UNOFFERED_NAME] += any(text for key, text in requests.items() if key not in self.offered)
        return +total

    def _end_simulation(self) -> None:
        """Roll everything back before the cluster changes, as a cycle does."""
        self.ledger.rollback(0)
        self.simulated.clear()


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(cases(150), stateful_step_count=30)
