"""Room by resources."""

from collections.abc import Mapping

import numpy as np
import pytest

from cpg_api.core.resources import ResourceList
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.testing.builders import node, pod

ROWS = np.arange(3)


@pytest.fixture
def ledger() -> Ledger:
    """4 CPU and 4Gi each: n0 is empty, n1 holds 2 CPU, n2 holds 1 CPU and 3Gi and offers 2 GPUs; 3 pods each."""
    ledger = Ledger()
    for name, gpus in (("n0", 0), ("n1", 0), ("n2", 2)):
        ledger.put_node(node(name, memory="4Gi", pods=3, more={"gpu": gpus} if gpus else None))
    ledger.put_pod(pod("x", cpu=2), "n1")
    ledger.put_pod(pod("y", cpu=1, memory="3Gi"), "n2")
    return ledger


def kind(ledger: Ledger, **requests: str | float) -> PodClass:
    """Return the class of a pod with these requests."""
    return ledger.class_of(pod("p", overhead=dict(requests)))


@pytest.mark.parametrize(
    ("requests", "passes", "slots", "ever", "empty"),
    [
        ({}, [1, 1, 1], [3, 2, 2], [1, 1, 1], [3, 3, 3]),
        ({"cpu": 2}, [1, 1, 1], [2, 1, 1], [1, 1, 1], [2, 2, 2]),
        ({"cpu": 3}, [1, 0, 1], [1, 0, 1], [1, 1, 1], [1, 1, 1]),
        ({"cpu": "3001m"}, [1, 0, 0], [1, 0, 0], [1, 1, 1], [1, 1, 1]),
        ({"cpu": 5}, [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]),
        ({"memory": "1Gi"}, [1, 1, 1], [3, 2, 1], [1, 1, 1], [3, 3, 3]),
        ({"gpu": 1}, [0, 0, 1], [0, 0, 2], [0, 0, 1], [0, 0, 2]),
        ({"unheard-of": 1}, [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]),
        ({"cpu": "9E"}, [0, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]),
    ],
)
def test_room_is_what_is_left(
    ledger: Ledger, requests: ResourceList, passes: list[int], slots: list[int], ever: list[int], empty: list[int]
) -> None:
    """Whether one more fits, how many do, whether one would fit the empty node, and how many would."""
    found = kind(ledger, **requests)
    assert passes == node_resources.passes(found, ledger, ROWS).astype(int).tolist()
    assert slots == node_resources.slots(found, ledger, ROWS).tolist()
    assert ever == node_resources.could_fit_if_empty(found, ledger, ROWS).astype(int).tolist()
    assert empty == node_resources.empty_slots(found, ledger, ROWS).tolist()


@pytest.mark.parametrize(("extra", "passes"), [(0, [1, 1, 1]), (1, [1, 0, 1]), (2, [1, 0, 0]), (3, [0, 0, 0])])
def test_extra_pods_count_as_placed(ledger: Ledger, extra: int, passes: list[int]) -> None:
    """The next pod of 1250m has to fit beside so many others of its class."""
    assert passes == node_resources.passes(kind(ledger, cpu="1250m"), ledger, ROWS, extra).astype(int).tolist()


def test_room_agrees_with_the_number_that_fits(ledger: Ledger) -> None:
    """A node passes with so many extra pods exactly as long as it has room for one more than these."""
    found = kind(ledger, cpu="1250m", memory="512Mi")
    for extra in range(5):
        assert np.array_equal(
            node_resources.passes(found, ledger, ROWS, extra), node_resources.slots(found, ledger, ROWS) > extra
        )


def test_resources_that_are_not_requested_are_ignored(ledger: Ledger) -> None:
    """A node that is overcommitted in memory takes a pod that requests CPU alone."""
    ledger.put_pod(pod("z", memory="9Gi"), "n0")
    assert node_resources.passes(kind(ledger, cpu=1), ledger, ROWS).all()
    assert node_resources.passes(kind(ledger, memory=1), ledger, ROWS).tolist() == [False, True, True]


def test_an_overcommitted_node_has_zero_room(ledger: Ledger) -> None:
    """It counts as full, so that sums over nodes stay right."""
    ledger.put_pod(pod("z", cpu=9), "n0")
    assert node_resources.slots(kind(ledger, cpu=1), ledger, ROWS).tolist() == [0, 2, 2]


def test_a_node_without_a_resource_offers_none_of_it(ledger: Ledger) -> None:
    """Without CPU there is none; without pods no pod fits, even one that requests nothing."""
    ledger.put_node(node("n0", cpu=None, memory="4Gi", pods=3))
    ledger.put_node(node("n1", memory="4Gi", pods=None))
    assert node_resources.passes(kind(ledger), ledger, ROWS).tolist() == [True, False, True]
    assert node_resources.passes(kind(ledger, cpu="1m"), ledger, ROWS).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("requests", "short"),
    [
        ({}, {}),
        ({"cpu": 3}, {"cpu": 1}),
        ({"cpu": 3, "memory": "2Gi", "gpu": 1}, {"cpu": 1, "memory": 1, "gpu": 2}),
        ({"cpu": 5}, {"cpu": 3}),
    ],
)
def test_each_shortage_is_counted(ledger: Ledger, requests: ResourceList, short: Mapping[str, int]) -> None:
    """Every node counts once for each resource that it is short of."""
    assert short == node_resources.shortages(kind(ledger, **requests), ledger, ROWS)


def test_the_number_of_pods_is_a_resource(ledger: Ledger) -> None:
    """A node with its maximum of pods is short of pods."""
    ledger.place(kind(ledger), np.array([0, 0, 0]))
    assert node_resources.shortages(kind(ledger), ledger, ROWS) == {"pods": 1}
