"""The answers of the optional webhook: users see a mistake at once, in their terminal.

An object is judged by the view, in the words of the condition ``Invalid``. No request is made, so an answer takes a
millisecond. An object that we cannot judge is allowed: a webhook that blocks users is worse than none.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.admission import Review, review_group, review_workload
from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.validation import ValidationContext
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.view.cluster_view import ClusterView

MAX_WARNINGS = 5
MAX_WARNING_LENGTH = 250
"""Characters: kubectl shows more, but the API server may drop longer warnings."""

PlainObject: TypeAlias = Mapping[str, Any] | None


class Reviewer:
    """Judges objects of our flavour before the API server accepts them."""

    def __init__(self, view: ClusterView, metrics: OperatorMetrics) -> None:
        """Judge by this view."""
        self._view = view
        self._metrics = metrics
        self._log: FilteringBoundLogger = structlog.get_logger()

    def review(self, kind: type[Group | Workload], new: PlainObject, old: PlainObject) -> Review:
        """Judge a new object or a changed spec; warnings are few and short."""
        try:
            found = self._review(kind, new, old)
        except Exception:  # noqa: BLE001  # a defect of ours must not block users
            self._metrics.count_mistake()
            self._log.exception("admission failed")
            return Review()
        return Review(refusals=found.refusals, warnings=tuple(_shortened(one) for one in found.warnings[:MAX_WARNINGS]))

    def _review(self, kind: type[Group | Workload], new: PlainObject, old: PlainObject) -> Review:
        view = self._view
        found, before = _converted(new, kind), _converted(old, kind)
        if found is None or found.metadata.deletion_timestamp is not None or CRD not in view.kinds:
            return Review()
        if before is not None and before.spec == found.spec:
            return Review()
        if view.is_unread(found.metadata.namespace):
            return Review()
        forest = view.groups(CRD).forest
        surroundings = ValidationContext(workloads=view.workloads(CRD), classes=view.classes)
        if isinstance(found, Workload):
            made = view.groups(CRD).groups_of_workload(found.metadata.namespace, found.metadata.name)
            return review_workload(forest, made, found, surroundings)
        return review_group(forest, found, surroundings, knows_classes=view.knows_classes)


def _converted(plain: PlainObject, kind: type[Group | Workload]) -> Group | Workload | None:
    """Return the object, if there is one; the API server refuses what does not fit its type."""
    if plain is None:
        return None
    found: Group | Workload | Rejected = convert_object(dict(plain), kind)
    return None if isinstance(found, Rejected) else found


def _shortened(warning: str) -> str:
    return warning if len(warning) <= MAX_WARNING_LENGTH else warning[: MAX_WARNING_LENGTH - 1] + "…"
