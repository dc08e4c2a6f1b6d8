"""Host ports."""

import numpy as np
import pytest
from hypothesis import given

from cpg_api.core.pod import Container, ContainerPort, Pod
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_relations import HostPort
from cpg_engine.filters.node_ports import REASON, NodePorts, PortConflictQuery
from cpg_engine.filters.registry import PreFilterState
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.call_counts import count_calls
from cpg_engine.testing.filter_model import ports_free
from cpg_engine.testing.filter_strategies import FilterCase, filter_cases, with_ports
from cpg_engine.testing.strategies import cases


def with_port(name: str, port: int = 80, address: str = "", protocol: str = "TCP") -> Pod:
    """Return a pod with one container that has a host port."""
    ports = (ContainerPort(host_port=port, host_ip=address, protocol=protocol),)
    return pod(name, containers=(Container(ports=ports),))


def two_nodes(*pods: Pod) -> Ledger:
    """Return a ledger of nodes ``a`` and ``b`` and of pods on ``a``."""
    ledger = Ledger()
    for name in "ab":
        ledger.put_node(node(name))
    for found in pods:
        ledger.put_pod(found, "a")
    return ledger


@pytest.mark.parametrize(
    ("taken", "wanted", "free"),
    [
        ((80,), (80,), False),
        ((80,), (443,), True),
        ((80, "10.0.0.1"), (80, "10.0.0.2"), True),
        ((80, "10.0.0.1"), (80, "10.0.0.1"), False),
        ((80, "0.0.0.0"), (80, "10.0.0.1"), False),  # noqa: S104 - nothing is bound here
        ((80, "10.0.0.1"), (80, "0.0.0.0"), False),  # noqa: S104 - nothing is bound here
        ((80, "10.0.0.1"), (80, ""), False),
        ((80, "", "TCP"), (80, "", "UDP"), True),
        ((80, "", ""), (80, "", "TCP"), False),
    ],
)
def test_a_port_is_free_or_not(taken: tuple[int], wanted: tuple[int], *, free: bool) -> None:
    """Port, protocol and address decide; no address means all of them, and no protocol means TCP."""
    ledger = two_nodes(with_port("taken", *taken))
    state = NodePorts(ledger).pre_filter(ledger.class_of(with_port("wanted", *wanted)))
    assert state is not None
    assert state.passes(np.array([ledger.cluster.row_of["a"], ledger.cluster.row_of["b"]])).tolist() == [free, True]


def test_the_reason_is_kube_schedulers() -> None:
    """It is given per node, an eviction could help everywhere, and no node is preferred."""
    ledger = two_nodes(with_port("taken"))
    state: PreFilterState | None = NodePorts(ledger).pre_filter(ledger.class_of(with_port("wanted")))
    assert state is not None
    rows = np.array([ledger.cluster.row_of["a"], ledger.cluster.row_of["b"]])
    assert [(reason, passed.tolist()) for reason, passed in state.checks(rows)] == [(REASON, [False, True])]
    assert state.could_ever_pass(rows).tolist() == [True, True]
    assert state.score(rows) is None


def test_sidecars_count_and_other_init_containers_do_not() -> None:
    """An init container that has ended before the pod runs holds no port."""
    port = (ContainerPort(host_port=80),)
    sidecar = pod("sidecar", init_containers=(Container(ports=port, restart_policy="Always"),))
    init = pod("init", init_containers=(Container(ports=port),))
    ledger = Ledger()
    assert ledger.class_of(sidecar).relations.ports == {HostPort("0.0.0.0", "TCP", 80)}  # noqa: S104 - as above
    assert ledger.class_of(init).relations.ports == frozenset()


def test_pods_without_host_ports_have_no_state() -> None:
    """Such pods are placed in batches, and conflict with none."""
    ledger = two_nodes(with_port("taken"))
    plain = ledger.class_of(pod("plain", containers=(Container(ports=(ContainerPort(container_port=80),)),)))
    assert NodePorts(ledger).pre_filter(plain) is None
    assert PortConflictQuery(frozenset([HostPort("10.0.0.1", "TCP", 80)])).weight(plain, {}) == 0


def test_the_cost_is_linear_in_ports() -> None:
    """Twice the ports on both sides are twice the work, and pods with other ports are not evaluated."""

    def work(count: int) -> int:
        def many(name: str, first: int) -> Pod:
            ports = tuple(ContainerPort(host_port=number, host_ip="::1") for number in range(first, first + count))
            return pod(name, containers=(Container(ports=ports),))

        ledger = two_nodes(many("taken", 1), with_port("one", 20_000))
        state = NodePorts(ledger).pre_filter(ledger.class_of(many("wanted", 10_000)))
        assert state is not None
        rows = ledger.cluster.everything()

        def look() -> None:
            assert state.passes(rows).all()
            ledger.put_pod(many("late", 20_000), "b")

        return count_calls(look)

    assert work(2000) <= 2.1 * work(1000)


def test_classes_are_indexed_by_port() -> None:
    """For as long as a pod of the class is on a node."""
    ledger = two_nodes(with_port("taken", 80, "10.0.0.1"), with_port("other", 443))
    taken = ledger.class_of(with_port("taken", 80, "10.0.0.1"))
    pod_index = ledger.pod_index
    assert list(pod_index.taking([("TCP", 80), ("UDP", 443)])) == [taken]
    for name in ("taken", "other"):
        ledger.remove_pod(f"uid-default-{name}")
    assert (pod_index.taking([("TCP", 80)]), pod_index._taking) == ({}, {})


@given(filter_cases(with_ports()))
@cases(300)
def test_it_agrees_with_the_obvious_model(case: FilterCase) -> None:
    """On small clusters, every node gets the answer of the slow model."""
    ledger, incoming, rows = case.settled()
    state = NodePorts(ledger).pre_filter(incoming)
    passed = [True] * len(rows) if state is None else state.passes(rows).tolist()
    assert [ports_free(case.placed, case.incoming, home) for home in case.placed.nodes] == passed
