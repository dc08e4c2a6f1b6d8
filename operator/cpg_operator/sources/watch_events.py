"""Takes Kopf's events of groups and Workloads into the view."""

from collections.abc import Mapping
from typing import Any, cast

import kopf
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.meta import ObjectMeta
from cpg_api.parsing import Rejected, convert_object
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.sources.rejections import Rejections
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.view.projections import slim_managed
from cpg_operator.view.tree_index import ManagedObject
from cpg_operator.writing.expectations import Expectations


class WatchEvents:
    """Brings the view up to date with each event."""

    def __init__(
        self, view: ClusterView, *, expectations: Expectations, rejections: Rejections, metrics: OperatorMetrics
    ) -> None:
        """Take nothing yet."""
        self._view = view
        self._expectations = expectations
        self._rejections = rejections
        self._metrics = metrics
        self._log: FilteringBoundLogger = structlog.get_logger()

    def is_new(self, flavour: str, kind: type, event: kopf.RawEvent) -> bool:
        """Return whether the view lacks an event.

        Two thirds of all events are answers to writes of ours that the view has already: Kopf skips the handler then.
        """
        return event["type"] == "DELETED" or not self._view.has_version(flavour, kind, event["object"]["metadata"])

    def take(self, flavour: str, kind: type, event: kopf.RawEvent) -> None:
        """Take one event; an exception about one object must not stop the events of others."""
        try:
            found = _converted(event["object"], cast("type[ManagedObject]", kind))
            if isinstance(found, Rejected):
                self._reject(flavour, kind, event["object"]["metadata"], found)
            else:
                self._take(flavour, event["type"], found)
        except Exception:  # noqa: BLE001  # it is a defect of ours, whatever it is
            self._metrics.count_mistake()
            name = event["object"]["metadata"].get("name")
            self._log.exception("event not processed", kind=kind.__name__, name=name)

    def _reject(self, flavour: str, kind: type, metadata: Mapping[str, Any], found: Rejected) -> None:
        """Report an object that does not fit its type; it counts as absent, and so does an earlier one of its name."""
        self._rejections.report(kind, found)
        target = ObjectMeta(name=metadata.get("name", ""), namespace=metadata.get("namespace", ""))
        self._view.forget_missing(flavour, self._view.kinds[flavour][kind], target)

    def _take(self, flavour: str, event_type: str | None, found: ManagedObject) -> None:
        if event_type == "DELETED":
            self._view.remove(flavour, found)
            self._expectations.forget(found.metadata.uid)
        else:
            self._view.put(flavour, slim_managed(found))


def _converted(plain: Any, kind: type[ManagedObject]) -> ManagedObject | Rejected:  # noqa: ANN401  # as JSON is
    """Return the object. What the API server sends nearly always fits without the search for nulls."""
    try:
        return msgspec.convert(plain, kind)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return convert_object(plain, kind)
