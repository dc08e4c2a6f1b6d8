"""The distinct tolerations of hints, as numbers, and which taints each of them tolerates, computed once."""

import numpy as np
from numpy.typing import NDArray

from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_api.tolerations import first_untolerated_taint
from cpg_engine.cluster.axes import Flags

UNKNOWN = -1
MAX_TAINT_SETS = 64
"""Sets of taints that answers are kept for."""


class TolerationIndex:
    """Numbers for tuples of tolerations, each valid for as long as something uses it."""

    def __init__(self) -> None:
        """Start empty."""
        self._number_of: dict[tuple[Toleration, ...], int] = {}
        self._tolerations: list[tuple[Toleration, ...]] = []
        self._uses: list[int] = []
        self._unused: list[int] = []
        self._answers: dict[tuple[Taint, ...], NDArray[np.int8]] = {}
        """For each set of taints and each number 1 or 0, or ``UNKNOWN``."""

    def add(self, tolerations: tuple[Toleration, ...]) -> int:
        """Return the number of some tolerations, which has one more use now."""
        number = self._number_of.get(tolerations)
        if number is None:
            number = self._unused.pop() if self._unused else len(self._tolerations)
            if number == len(self._tolerations):
                self._tolerations.append(tolerations)
                self._uses.append(0)
            self._number_of[tolerations], self._tolerations[number] = number, tolerations
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """End one use of a number."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        del self._number_of[self._tolerations[number]]
        self._tolerations[number] = ()
        self._unused.append(number)
        for answers in self._answers.values():
            if number < len(answers):
                answers[number] = UNKNOWN

    def tolerates(self, numbers: NDArray[np.intp], taints: tuple[Taint, ...]) -> Flags:
        """Return for each number whether its tolerations tolerate all the taints that keep pods from a node."""
        answers = self._answers_for(taints)
        for number in np.unique(numbers[answers[numbers] == UNKNOWN]).tolist():
            answers[number] = first_untolerated_taint(taints, self._tolerations[number]) is None
        found: Flags = answers[numbers] == 1
        return found

    def _answers_for(self, taints: tuple[Taint, ...]) -> NDArray[np.int8]:
        answers = self._answers.get(taints)
        if answers is None:
            if len(self._answers) >= MAX_TAINT_SETS:
                self._answers.clear()
            answers = np.zeros(0, dtype=np.int8)
        more = len(self._tolerations) - len(answers)
        if more > 0:
            answers = np.concatenate([answers, np.full(2 * more, UNKNOWN, dtype=np.int8)])
        self._answers[taints] = answers
        return answers
