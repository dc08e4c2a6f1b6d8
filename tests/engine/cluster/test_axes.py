"""The axis of resources: columns stay where they are."""

import numpy as np

from cpg_engine.cluster.axes import BASE, CPU, MAX_AMOUNT, MEMORY, PODS, STORAGE, UNOFFERED, ResourceAxis


def test_the_base_columns_are_where_their_names_say() -> None:
    """CPU, memory, ephemeral storage and pods are on every axis, in this order, and the shared column behind them."""
    assert ("cpu", "memory", "ephemeral-storage", "pods") == BASE == ResourceAxis().names[:UNOFFERED]
    assert list(range(ResourceAxis().size)) == [CPU, MEMORY, STORAGE, PODS, UNOFFERED]
    assert ResourceAxis().places == {name: place for place, name in enumerate(BASE)}


def test_new_names_are_appended_in_one_order() -> None:
    """Whatever the order in which resources are met, those met together stand sorted behind the known ones."""
    names = (*ResourceAxis().names, "a.io/x", "b.io/y")
    assert names == ResourceAxis().grown(["b.io/y", "cpu", "a.io/x"]).names
    assert names == ResourceAxis().grown(["a.io/x", "b.io/y", "a.io/x"]).names


def test_later_names_never_move_earlier_ones() -> None:
    """A column keeps its place although a name that sorts before it comes later."""
    names = (*ResourceAxis().names, "z.io/z", "a.io/a")
    assert names == ResourceAxis().grown(["z.io/z"]).grown(["a.io/a"]).names


def test_growing_by_known_names_returns_the_same_axis() -> None:
    """No new axis is made where no name is missing."""
    axis = ResourceAxis()
    assert axis.grown(["cpu", "pods"]) is axis


def test_amounts_become_a_row() -> None:
    """Each amount stands in the column of its name, and what is not asked for is zero."""
    row = ResourceAxis().grown(["gpu"]).vector({"gpu": 2, "memory": 5, "pods": 1})
    assert row.tolist() == [0, 5, 0, 1, 0, 2]
    assert np.int64 == row.dtype


def test_names_without_a_column_share_one() -> None:
    """It has one for any number of them, however large, so the sum over pods cannot overflow; none for a zero."""
    axis = ResourceAxis()
    assert axis.vector({"cpu": 7, "a.io/x": MAX_AMOUNT, "b.io/y": MAX_AMOUNT}).tolist() == [7, 0, 0, 0, 1]
    assert axis.vector({"cpu": 7, "a.io/x": 0}).tolist() == [7, 0, 0, 0, 0]


def test_no_name_hits_the_shared_column() -> None:
    """Whatever a node or a pod calls its resource, the shared column stays empty of amounts."""
    (shared,) = set(ResourceAxis().names) - set(BASE)
    for name in (shared, ""):
        assert ResourceAxis().vector({name: 5})[UNOFFERED] == 1
        assert ResourceAxis().grown([name]).vector({name: 5}).tolist() == [0, 0, 0, 0, 0, 5]


class Compared(str):
    """A name that counts how often any is compared with another."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str(self) == other

    __hash__ = str.__hash__


def test_names_are_found_by_hash() -> None:
    """A pod may name thousands of resources; each name is compared with one other."""
    names = [f"ex.io/r{number}" for number in range(1000)]
    axis = ResourceAxis().grown(Compared(name) for name in names)
    Compared.times = 0
    assert axis.vector(dict.fromkeys(names, 1)).sum() == 1000
    assert axis.grown(names) is axis
    assert Compared.times <= 4000


def test_the_largest_amounts_can_be_summed_and_scaled() -> None:
    """A hundredfold of the largest amount fits int64, and so do eight thousand of them."""
    assert np.iinfo(np.int64).max >= 100 * MAX_AMOUNT
    assert np.iinfo(np.int64).max >= 8000 * MAX_AMOUNT
