"""The step that writes counts, domain and health."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.conditions import merge_conditions
from cpg_api.meta import Condition
from cpg_api.scheduling.compositepodgroup import CompositePodGroupStatus
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.partial_release import RELEASE_ANNOTATION
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_client.flavours import CRD, NATIVE
from cpg_client.stores import Added
from cpg_engine.testing.builders import composite, metadata, node, pod_group
from cpg_operator.context import ReconcileContext
from cpg_operator.steps.health import report_health
from cpg_operator.testing.fixtures import TIMESTAMP, ViewFixture, members, small_tree
from cpg_operator.writes import Verb


@pytest.fixture
def fixture() -> ViewFixture:
    """Return an empty view."""
    return ViewFixture()


def written(context: ReconcileContext) -> dict[str, dict[str, Any]]:
    """Return the status that is written for each group, as it is sent."""
    return {
        one.target.name: msgspec.json.decode(msgspec.json.encode(one.body)) for one in report_health(context).writes
    }


def after(group: Group, body: dict[str, Any]) -> Group:
    """Return a newer version of a group, with the written status."""
    meta = replace(group.metadata, resource_version="2")
    if isinstance(group, PodGroup):
        return replace(group, metadata=meta, status=msgspec.convert(body, PodGroupStatus))
    return replace(group, metadata=meta, status=msgspec.convert(body, CompositePodGroupStatus))


def test_counts_health_and_domain_are_written(fixture: ViewFixture) -> None:
    """Including zeros, so that kubectl shows them."""
    fixture.view.on_node(Added("n1", node("n1", labels={"rack": "r1"})))
    fixture.put(composite("root", gang=1, key="rack"), pod_group("a", gang=2, parent="root"))
    fixture.add_pods(*members("a", 1))
    assert written(fixture.context())["a"] == {
        "conditions": [
            {
                "type": "Healthy",
                "status": "False",
                "reason": "Partial",
                "message": "1 of 1 pods running, 1 short",
                "observedGeneration": 0,
                "lastTransitionTime": TIMESTAMP,
            }
        ],
        "pods": {"desired": 1, "scheduled": 1, "running": 1},
    }
    root = written(fixture.context())["root"]
    assert (root["groups"], root["domain"]) == ({"desired": 1, "ready": 0}, {"key": "rack", "value": "r1"})
    assert [one["type"] for one in root["conditions"]] == ["Healthy", "Partial"]


def test_a_current_status_is_not_written_again(fixture: ViewFixture) -> None:
    """A reconcile that finds its own status writes nothing."""
    fixture.put(*small_tree())
    fixture.add_pods(*members("a", 2))
    for flavour in (NATIVE, CRD):
        context = fixture.context(flavour=flavour)
        found = written(context)
        fixture.put(*(after(one.group, found[one.key.name]) for one in context.tree.nodes), flavour=flavour)
        assert report_health(fixture.context(flavour=flavour)).writes == ()


@pytest.mark.parametrize("missing", ["pods", "conditions"])
def test_an_erased_status_is_written_again(fixture: ViewFixture, missing: str) -> None:
    """Whether a part of it is missing or all."""
    group = pod_group("a", gang=1)
    fixture.put(group)
    found = written(fixture.context("a", kind="PodGroup"))["a"]
    erased = {key: value for key, value in found.items() if key != missing}
    fixture.put(after(group, erased))
    assert set(written(fixture.context("a", kind="PodGroup"))) == {"a"}


def test_the_native_flavour_gets_the_condition_alone(fixture: ViewFixture) -> None:
    """Its schema has no fields for counts."""
    fixture.put(*small_tree(), flavour=NATIVE)
    for body in written(fixture.context(flavour=NATIVE)).values():
        assert set(body) == {"conditions"}


def test_partial_is_removed_when_the_tree_is_not_partial_any_more(fixture: ViewFixture) -> None:
    """The condition keeps the time at which the tree became partial, and is absent otherwise."""
    fixture.put(*small_tree())
    fixture.add_pods(*members("a", 1))
    first = written(fixture.context())["root"]
    early = [{**one, "lastTransitionTime": "1970-01-01T00:00:00Z"} for one in first["conditions"]]
    root = small_tree()[0]
    fixture.put(after(root, first | {"conditions": early}))
    assert "root" not in written(fixture.context())
    fixture.remove_pods(*members("a", 1))
    assert [one["type"] for one in written(fixture.context())["root"]["conditions"]] == ["Healthy"]


def test_a_foreign_domain_and_condition_are_removed(fixture: ViewFixture) -> None:
    """By a merge over the version that was seen, once our own status is current."""
    for flavour, foreign in ((CRD, {"domain": {"key": "rack", "value": "r1"}}), (NATIVE, {})):
        group = pod_group("a", gang=1)
        fixture.put(group, flavour=flavour)
        found = written(fixture.context("a", kind="PodGroup", flavour=flavour))["a"]
        healthy, *_ = found["conditions"]
        others = [healthy | {"type": "Other"}, healthy | {"type": "Partial", "status": "True"}]
        fixture.put(after(group, {**found, **foreign, "conditions": [healthy, *others]}), flavour=flavour)
        (write,) = report_health(fixture.context("a", kind="PodGroup", flavour=flavour)).writes
        assert (write.verb, write.unchanged) == (Verb.MERGE_STATUS, True)
        assert set(write.body) == {"conditions", *foreign}
        assert [one.type for one in write.body["conditions"]] == ["Healthy", "Other"]
        assert write.body.get("domain") is None
        fixture.view.remove(flavour, group)


@pytest.mark.parametrize(
    ("chosen", "text"),
    [(None, "keeps trying"), ("5m", "deleted after 300 s"), ("soon", "is neither default nor a duration")],
)
def test_partial_says_what_will_happen(fixture: ViewFixture, chosen: str | None, text: str) -> None:
    """By the annotation of the root, also where that cannot be read."""
    annotations = {RELEASE_ANNOTATION: chosen} if chosen else {}
    fixture.put(pod_group("a", gang=2, meta=replace(metadata("a"), annotations=annotations)))
    fixture.add_pods(*members("a", 1))
    (_, partial) = written(fixture.context("a", kind="PodGroup"))["a"]["conditions"]
    assert text in partial["message"]


def test_conditions_of_other_writers_are_not_sent(fixture: ViewFixture) -> None:
    """The transition time of a status that does not change is kept."""
    group = pod_group("a", gang=2)
    others = (
        Condition(type="DisruptionTarget", status="True", reason="X", last_transition_time="2026-01-01T00:00:00Z"),
        Condition(type="Healthy", status="False", reason="X", last_transition_time="2026-01-01T00:00:00Z"),
    )
    conditions, _ = merge_conditions((), others, "")
    fixture.put(replace(group, status=replace(group.status, conditions=conditions)))
    (only,) = written(fixture.context("a", kind=PodGroup.kind))["a"]["conditions"]
    assert (only["type"], only["lastTransitionTime"]) == ("Healthy", "2026-01-01T00:00:00Z")
