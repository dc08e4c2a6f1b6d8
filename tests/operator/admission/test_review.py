"""The answers of the webhook: it refuses and warns by the view, and allows wherever that is not enough."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.admission import Review
from cpg_api.manifests import to_manifest
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_engine.testing.builders import composite, leaf_template, pod_group, workload
from cpg_operator.admission.review import MAX_WARNING_LENGTH, MAX_WARNINGS, Reviewer
from cpg_operator.metrics import MetricsSnapshot, OperatorMetrics
from cpg_operator.testing.fixtures import RecordingQueue, ViewFixture
from cpg_operator.view.cluster_view import ClusterView

KIND = {kind.__name__: kind for kind in KINDS[CRD]}
CLOSING = composite("y", parent="x")


class Rig:
    """A reviewer over a view."""

    def __init__(self, *groups: Group | Workload, view: ClusterView | None = None) -> None:
        """Put these objects into the view."""
        self.metrics = OperatorMetrics()
        self.view = view or ViewFixture().view
        for group in groups:
            self.view.put(CRD, group)
        self._reviewer = Reviewer(self.view, self.metrics)

    def review(self, new: Any, old: Any = None) -> Review:  # noqa: ANN401  # as JSON is
        """Review an object."""
        return self._reviewer.review(KIND[new["kind"]], new, old)


def test_an_object_that_nothing_could_make_valid_is_refused() -> None:
    """With the message of the condition."""
    found = Rig(composite("x", parent="y")).review(to_manifest(CLOSING))
    assert found.refusals == ("the parents of CompositePodGroup default/x form a cycle: x -> y -> x",)


def test_in_a_namespace_that_has_not_been_read_everything_is_allowed() -> None:
    """Its objects are not all known."""
    fixture = ViewFixture("default")
    rig = Rig(composite("x", parent="y"), view=fixture.view)
    assert rig.review(to_manifest(CLOSING)) == Review()
    fixture.mark_read()
    assert rig.review(to_manifest(CLOSING)).refusals


def test_an_object_that_may_become_valid_gets_a_warning() -> None:
    """A few of them, none too long for the API server."""
    leaves = [replace(leaf_template("t"), name=f"{'long' * 60}-{number}") for number in range(9)]
    groups = [pod_group(f"g{number}", workload="w", template=leaf.name) for number, leaf in enumerate(leaves)]
    found = Rig(*groups).review(to_manifest(workload([leaf_template("other")])))
    assert not found.refusals
    assert [len(warning) for warning in found.warnings] == [MAX_WARNING_LENGTH] * MAX_WARNINGS
    short = Rig(workload([leaf_template("b")])).review(to_manifest(pod_group("a", workload="w", template="a")))
    assert short.warnings == ("PodGroup default/a references template a, which Workload default/w does not have",)


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (to_manifest(CLOSING), to_manifest(replace(CLOSING, metadata=replace(CLOSING.metadata, labels={"a": "b"})))),
        (
            to_manifest(
                replace(CLOSING, metadata=replace(CLOSING.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))
            ),
            None,
        ),
        ({"kind": PodGroup.kind, "spec": 7}, None),
        ({**to_manifest(CLOSING), "spec": None}, None),
    ],
)
def test_an_unchanged_spec_is_not_reviewed(new: Any, old: Any) -> None:  # noqa: ANN401  # as JSON is
    """Nor an object that is being deleted, or that does not fit its type."""
    assert Rig(composite("x", parent="y")).review(new, old) == Review()


def test_a_deletion_is_not_reviewed() -> None:
    """It has no new object."""
    reviewer = Reviewer(ViewFixture().view, OperatorMetrics())
    assert reviewer.review(CompositePodGroup, None, to_manifest(CLOSING)) == Review()


def test_where_our_flavour_is_not_served_everything_is_allowed() -> None:
    """The view has none of its objects."""
    rig = Rig(view=ClusterView({NATIVE: KINDS[NATIVE]}, RecordingQueue()))
    assert rig.review(to_manifest(CLOSING)) == Review()


def test_an_exception_in_our_code_allows_the_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted."""
    rig = Rig(composite("x", parent="y"))
    monkeypatch.setattr(rig.view, "groups", lambda _: 1 / 0)
    assert rig.review(to_manifest(CLOSING)) == Review()
    page = rig.metrics.page(MetricsSnapshot(states=(), queued=0, pending_writes=0, watch_age=0.0)).decode()
    assert "cpg_operator_mistakes_total 1.0" in page
