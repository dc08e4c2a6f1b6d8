"""Reports objects that do not fit their type: the operator treats them as absent."""

import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.parsing import Rejected
from cpg_operator.metrics import OperatorMetrics


class Rejections:
    """Logs and counts objects that do not fit their type."""

    def __init__(self, metrics: OperatorMetrics) -> None:
        """Report nothing yet."""
        self._metrics = metrics
        self._log: FilteringBoundLogger = structlog.get_logger()

    def report(self, kind: type, found: Rejected) -> None:
        """Report one object."""
        self._metrics.count_rejected(kind.__name__)
        self._log.warning("object refused", kind=kind.__name__, name=found.name, problems=[*map(str, found.problems)])
