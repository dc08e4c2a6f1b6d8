"""The optional webhook's answers: what is wrong with an object is said while its user still looks at the terminal.

Judged is by what the operator knows anyway, in the words of the condition ``Invalid``; nobody is asked, so an answer
takes a millisecond. What is not understood is allowed: a webhook that stands in the way is worse than none. So a
replica that only stands by, which knows nothing, allows everything.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from cpg_api.admission import Review, review_group, review_workload
from cpg_api.decoding import decode
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.validation import ValidationContext, summarize
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD
from cpg_operator.metrics import Metrics
from cpg_operator.view.cluster_view import ClusterView

KINDS: Mapping[str, type[Group | Workload]] = {kind.kind: kind for kind in (PodGroup, CompositePodGroup, Workload)}
MOST_WARNINGS = 5
LONGEST_WARNING = 250
"""Letters: kubectl shows more, but the API server may leave longer ones out."""
Plain: TypeAlias = dict[str, Any]


class _Kind(msgspec.Struct, frozen=True):
    kind: str


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    kind: _Kind
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class _Question(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    request: _Request


class Reviewer:
    """Answers the API server's questions, by a view while there is one."""

    def __init__(self, metrics: Metrics) -> None:
        """Know nothing yet, and allow everything."""
        self.view: ClusterView | None = None
        self._metrics = metrics
        self._log: FilteringBoundLogger = structlog.get_logger()

    def answer(self, body: bytes) -> bytes:
        """Answer an ``AdmissionReview`` with one; raise ``ValueError`` where it is none."""
        question = decode(body, _Question)
        try:
            review = self._review(question.request)
        except Exception:  # noqa: BLE001  # a mistake of ours must not keep anybody from working
            self._metrics.mistaken()
            self._log.exception("admission failed")
            review = Review()
        response: Plain = {"uid": question.request.uid, "allowed": not review.refusals}
        if review.refusals:
            response["status"] = {"code": 422, "reason": "Invalid", "message": summarize(review.refusals)}
        if review.warnings:
            response["warnings"] = [_cut(warning) for warning in review.warnings[:MOST_WARNINGS]]
        answer = {"apiVersion": question.api_version, "kind": "AdmissionReview", "response": response}
        return msgspec.json.encode(answer)

    def _review(self, request: _Request) -> Review:
        """Judge a new object, or one whose spec has changed; what is on its way out is let go."""
        view, kind = self.view, KINDS.get(request.kind.kind)
        if view is None or CRD not in view.stores or kind is None:
            return Review()
        new, old = _parsed(request.object, kind), _parsed(request.old_object, kind)
        if new is None or new.metadata.deletion_timestamp is not None or (old is not None and old.spec == new.spec):
            return Review()
        if view.is_unread(new.metadata.namespace):
            return Review()
        forest = view.stores[CRD].forest
        around = ValidationContext(workloads=view.workloads[CRD], classes=view.classes)
        if isinstance(new, Workload):
            made = view.stores[CRD].groups_of_workload(new.metadata.namespace, new.metadata.name)
            return review_workload(forest, made, new, around)
        return review_group(forest, new, around, knows_classes=view.knows_classes)


def _parsed(raw: msgspec.Raw, kind: type[Group | Workload]) -> Group | Workload | None:
    """Return the object, if there is one and it fits; what does not fit is the API server's to refuse."""
    if bytes(raw) == b"null":
        return None
    found: Group | Workload | Rejected = parse_object(raw, kind)
    return None if isinstance(found, Rejected) else found


def _cut(warning: str) -> str:
    return warning if len(warning) <= LONGEST_WARNING else warning[: LONGEST_WARNING - 1] + "…"
