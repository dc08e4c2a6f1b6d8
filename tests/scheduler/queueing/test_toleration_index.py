"""Numbers for distinct tolerations."""

import numpy as np

from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_scheduler.queueing.toleration_index import MAX_TAINT_SETS, TolerationIndex

MINE = (Taint(key="mine", effect="NoSchedule"),)


def tolerations(key: str) -> tuple[Toleration, ...]:
    """Return a toleration of all taints of a key."""
    return (Toleration(key=key, operator="Exists"),)


def answers(index: TolerationIndex, *numbers: int, taints: tuple[Taint, ...] = MINE) -> list[bool]:
    """Return which of the numbers tolerate the taints."""
    found: list[bool] = index.tolerates(np.array(numbers), taints).tolist()
    return found


def test_equal_tolerations_have_one_number_until_the_last_use_ends() -> None:
    """Then the number is used again, and what was known about it is forgotten."""
    index = TolerationIndex()
    mine, other = index.add(tolerations("mine")), index.add(tolerations("other"))
    assert index.add(tolerations("mine")) == mine != other
    assert answers(index, mine, other) == [True, False]
    index.release(mine)
    assert answers(index, mine) == [True]
    index.release(mine)
    assert index.add(tolerations("third")) == mine
    assert answers(index, mine, other) == [False, False]


def test_numbers_that_come_later_have_answers() -> None:
    """Also if the taints are known already, and a number that has none yet can be released."""
    index = TolerationIndex()
    first = index.add(())
    assert answers(index, first) == [False]
    later = [index.add(tolerations(f"k{number}")) for number in range(9)]
    index.release(later.pop())
    assert answers(index, *later) == [False] * 8
    assert answers(index, index.add(tolerations("mine"))) == [True]


def test_answers_are_kept_for_few_sets_of_taints() -> None:
    """Each set of taints of a cluster's history would be kept otherwise."""
    index = TolerationIndex()
    number = index.add(tolerations("t3"))
    for key in range(3 * MAX_TAINT_SETS):
        assert answers(index, number, taints=(Taint(key=f"t{key}", effect="NoSchedule"),)) == [key == 3]
    assert len(index._answers) <= MAX_TAINT_SETS
