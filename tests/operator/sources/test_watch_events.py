"""Kopf's events of groups and Workloads, as they go into the view."""

from typing import Any

import pytest

from cpg_api.manifests import to_manifest
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.flavours import CRD
from cpg_client.resources import CPG_POD_GROUPS
from cpg_engine.testing.builders import metadata, pod_group
from cpg_operator.metrics import MetricsSnapshot, OperatorMetrics
from cpg_operator.sources.rejections import Rejections
from cpg_operator.sources.watch_events import WatchEvents
from cpg_operator.testing.fixtures import ViewFixture
from cpg_operator.writes import Verb, Write
from cpg_operator.writing.expectations import Expectations


class Rig:
    """The sink of events, over an empty view."""

    def __init__(self) -> None:
        """Start without objects."""
        self.view = ViewFixture().view
        self.metrics = OperatorMetrics()
        self.expectations = Expectations(lambda: 0.0)
        self.events = WatchEvents(
            self.view, expectations=self.expectations, rejections=Rejections(self.metrics), metrics=self.metrics
        )

    def take(self, kind: str | None, found: Any) -> None:  # noqa: ANN401  # as JSON is
        """Take an event of this type."""
        self.events.take(CRD, PodGroup, {"type": kind, "object": found})  # type: ignore[typeddict-item]

    def names(self) -> set[str]:
        """Return the names of known groups."""
        return {one.metadata.name for one in self.view.by_uid(CRD, PodGroup).values()}

    def page(self) -> str:
        """Return the page of metrics."""
        return self.metrics.page(MetricsSnapshot(states=(), queued=0, pending_writes=0, watch_age=0.0)).decode()


@pytest.fixture
def rig() -> Rig:
    """Return a rig."""
    return Rig()


def plain(name: str, **more: Any) -> dict[str, Any]:  # as JSON is
    """Return a group as the API server sends it."""
    return {**to_manifest(pod_group(name, meta=metadata(name))), **more}


def test_events_bring_the_view_up_to_date(rig: Rig) -> None:
    """From a LIST and from a watch; a null is an absent field, and an object that does not fit is reported."""
    rig.take(None, plain("a"))
    rig.take("ADDED", plain("b", status=None))
    rig.take("MODIFIED", plain("bad", spec=7))
    rig.take("DELETED", plain("a"))
    assert rig.names() == {"b"}
    assert 'cpg_operator_refused_objects_total{kind="PodGroup"} 1.0' in rig.page()


def test_writes_to_a_deleted_object_are_forgotten(rig: Rig) -> None:
    """A new object of its name is written to as if nothing had been written."""
    write = Write(verb=Verb.MERGE, resource=CPG_POD_GROUPS, target=metadata("a"), part="fields")
    rig.expectations.record(write)
    rig.take("ADDED", plain("a"))
    assert rig.expectations.is_met(write)
    rig.take("DELETED", plain("a"))
    assert not rig.expectations.is_met(write)


def test_a_known_version_is_not_new(rig: Rig) -> None:
    """It is the answer to a write of ours, nearly always. A deletion is always new."""
    known = plain("a")
    known["metadata"]["resourceVersion"] = "7"
    rig.take("ADDED", known)
    newer = {**known, "metadata": {**known["metadata"], "resourceVersion": "8"}}
    events: list[Any] = [{"type": kind, "object": found} for kind, found in (("MODIFIED", known), ("MODIFIED", newer))]
    assert [rig.events.is_new(CRD, PodGroup, one) for one in events] == [False, True]
    assert rig.events.is_new(CRD, PodGroup, {"type": "DELETED", "object": known})  # type: ignore[typeddict-item]


def test_an_exception_about_one_object_stops_no_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, and Kopf does not see it."""
    put = rig.view.put

    def fail_for_one(flavour: str, found: PodGroup) -> bool:
        if found.metadata.name == "bad":
            raise ValueError("a defect of ours")
        return put(flavour, found)

    monkeypatch.setattr(rig.view, "put", fail_for_one)
    for name in ("a", "bad", "b"):
        rig.take("ADDED", plain(name))
    assert rig.names() == {"a", "b"}
    assert "cpg_operator_mistakes_total 1.0" in rig.page()


@pytest.mark.parametrize("odd", [{"spec": 7}, {"spec": {"\ud800": 1}}])
def test_an_object_that_fits_no_longer_is_absent(rig: Rig, odd: dict[str, Any]) -> None:
    """As after a sweep; otherwise its deletion, which does not fit either, would leave it in the view."""
    rig.take("ADDED", plain("a"))
    rig.take("MODIFIED", plain("a", **odd))
    assert rig.names() == set()
    assert "cpg_operator_mistakes_total 0.0" in rig.page()
    rig.take("MODIFIED", plain("a"))
    assert rig.names() == {"a"}
