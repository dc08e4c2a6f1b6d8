"""The steps of looking at one tree: each a pure function from a scene to what it wants written.

A new step is a function of this shape in a file of its own and a line in ``STEPS``; rules that more than the operator
may need stand in ``cpg_api``.
"""

from collections.abc import Sequence

from cpg_operator.context import Step
from cpg_operator.steps.fields import fill
from cpg_operator.steps.finalizers import protection
from cpg_operator.steps.health import report
from cpg_operator.steps.partial_release import release
from cpg_operator.steps.validation import judge

STEPS: Sequence[Step] = (protection, fill, judge, report, release)
