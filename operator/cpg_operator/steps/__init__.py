"""The steps of reconciling one tree: each is a pure function from its context to the writes that it needs.

A new step is such a function in a file of its own and a line in ``STEPS``. Rules that not only the operator needs
belong to ``cpg_api``.
"""

from collections.abc import Sequence

from cpg_operator.context import Step
from cpg_operator.steps.drift import report_drift
from cpg_operator.steps.fields import fill_fields
from cpg_operator.steps.finalizers import update_finalizers
from cpg_operator.steps.health import report_health
from cpg_operator.steps.partial_release import release_partial
from cpg_operator.steps.validation import validate

STEPS: Sequence[Step] = (update_finalizers, fill_fields, validate, report_drift, report_health, release_partial)
