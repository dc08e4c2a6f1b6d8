"""The search for what grows."""

from collections import Counter
from collections.abc import Iterator
from weakref import WeakValueDictionary

import numpy as np

from cpg_engine.cluster.images import Images
from cpg_engine.cluster.nodes import LabelColumn
from cpg_engine.testing.builders import node
from cpg_engine.testing.container_sizes import container_sizes


def test_every_container_is_found() -> None:
    """Whether in a mapping, a sequence, an array, an attribute, a slot, a field, a method or a closure."""
    images, other = Images(), Images()
    images._code_of = {"a": 1, "b": 2}
    inner = [1, 2, 3]

    def closure() -> Iterator[int]:
        yield from inner

    weak = WeakValueDictionary({"images": other})
    found = container_sizes(
        {
            "method": images.put,
            "closure": closure,
            "column": LabelColumn(4),
            "struct": node("n", labels={"x": "y"}),
            "array": np.zeros((2, 3)),
            "weak": weak,
        }
    )
    assert found[""] == 6
    assert found["[]"] == 6 + 1  # the array, and the weak mapping
    assert found["[]._code_of"] == 2
    assert found["[]()"] == 3
    assert found["[].codes"] == 4
    assert found["[].metadata.labels"] == 1


def test_what_is_left_out_is_not_searched() -> None:
    """Nor is anything searched twice, so cycles are no problem."""
    left_out, cycle = [1, 2], [0]
    cycle.append(cycle)  # type: ignore[arg-type]
    assert container_sizes([left_out, cycle, cycle], without=[left_out]) == Counter({"": 3, "[]": 2})
