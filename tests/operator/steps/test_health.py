"""What is written about how a tree fares."""

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
from cpg_operator.steps.health import report
from cpg_operator.testing.fixtures import STAMP, ViewFixture, members, small_tree
from cpg_operator.writes import Verb


@pytest.fixture
def ground() -> ViewFixture:
    """Return an empty view."""
    return ViewFixture()


def written(scene: ReconcileContext) -> dict[str, dict[str, Any]]:
    """Return what is written about each group, as it goes over the wire."""
    return {one.target.name: msgspec.json.decode(msgspec.json.encode(one.body)) for one in report(scene).writes}


def after(group: Group, body: dict[str, Any]) -> Group:
    """Return a newer state of a group, with a status as it was written."""
    meta = replace(group.metadata, resource_version="2")
    if isinstance(group, PodGroup):
        return replace(group, metadata=meta, status=msgspec.convert(body, PodGroupStatus))
    return replace(group, metadata=meta, status=msgspec.convert(body, CompositePodGroupStatus))


def test_counts_health_and_domain_are_written(ground: ViewFixture) -> None:
    """With zeros spelled out, so that kubectl shows them."""
    ground.view.on_node(Added("n1", node("n1", labels={"rack": "r1"})))
    ground.put(composite("root", gang=1, key="rack"), pod_group("a", gang=2, parent="root"))
    ground.pods(*members("a", 1))
    assert written(ground.scene())["a"] == {
        "conditions": [
            {
                "type": "Healthy",
                "status": "False",
                "reason": "Partial",
                "message": "1 of 1 pods running, 1 short",
                "observedGeneration": 0,
                "lastTransitionTime": STAMP,
            }
        ],
        "pods": {"desired": 1, "scheduled": 1, "running": 1},
    }
    root = written(ground.scene())["root"]
    assert (root["groups"], root["domain"]) == ({"desired": 1, "ready": 0}, {"key": "rack", "value": "r1"})
    assert [one["type"] for one in root["conditions"]] == ["Healthy", "Partial"]


def test_what_stands_is_not_written_again(ground: ViewFixture) -> None:
    """A look that finds its own words writes nothing."""
    ground.put(*small_tree())
    ground.pods(*members("a", 2))
    for flavour in (NATIVE, CRD):
        scene = ground.scene(flavour=flavour)
        found = written(scene)
        ground.put(*(after(one.group, found[one.key.name]) for one in scene.tree.nodes), flavour=flavour)
        assert report(ground.scene(flavour=flavour)).writes == ()


@pytest.mark.parametrize("missing", ["pods", "conditions"])
def test_what_was_erased_is_written_again(ground: ViewFixture, missing: str) -> None:
    """Whether a part of it or all."""
    group = pod_group("a", gang=1)
    ground.put(group)
    found = written(ground.scene("a", kind="PodGroup"))["a"]
    erased = {key: value for key, value in found.items() if key != missing}
    ground.put(after(group, erased))
    assert set(written(ground.scene("a", kind="PodGroup"))) == {"a"}


def test_the_native_flavour_gets_the_condition_alone(ground: ViewFixture) -> None:
    """Its schema has no fields for counts."""
    ground.put(*small_tree(), flavour=NATIVE)
    for body in written(ground.scene(flavour=NATIVE)).values():
        assert set(body) == {"conditions"}


def test_partial_goes_when_it_is_over(ground: ViewFixture) -> None:
    """The condition is there while half a gang holds nodes, from when that began, and else not at all."""
    ground.put(*small_tree())
    ground.pods(*members("a", 1))
    first = written(ground.scene())["root"]
    early = [{**one, "lastTransitionTime": "1970-01-01T00:00:00Z"} for one in first["conditions"]]
    root = small_tree()[0]
    ground.put(after(root, first | {"conditions": early}))
    assert "root" not in written(ground.scene())
    ground.gone(*members("a", 1))
    assert [one["type"] for one in written(ground.scene())["root"]["conditions"]] == ["Healthy"]


def test_what_is_not_ours_to_leave_out_is_taken_away(ground: ViewFixture) -> None:
    """A domain and a condition that others have written, once what we say stands, from the very state that was seen."""
    for flavour, foreign in ((CRD, {"domain": {"key": "rack", "value": "r1"}}), (NATIVE, {})):
        group = pod_group("a", gang=1)
        ground.put(group, flavour=flavour)
        found = written(ground.scene("a", kind="PodGroup", flavour=flavour))["a"]
        healthy, *_ = found["conditions"]
        others = [healthy | {"type": "Other"}, healthy | {"type": "Partial", "status": "True"}]
        ground.put(after(group, {**found, **foreign, "conditions": [healthy, *others]}), flavour=flavour)
        (write,) = report(ground.scene("a", kind="PodGroup", flavour=flavour)).writes
        assert (write.verb, write.unchanged) == (Verb.MERGE_STATUS, True)
        assert set(write.body) == {"conditions", *foreign}
        assert [one.type for one in write.body["conditions"]] == ["Healthy", "Other"]
        assert write.body.get("domain") is None
        ground.view.drop(flavour, group)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [(None, "goes on trying"), ("5m", "released after 300 s"), ("soon", "is neither default nor a duration")],
)
def test_partial_says_what_will_become_of_it(ground: ViewFixture, chosen: str | None, words: str) -> None:
    """By the choice on the root, also where that cannot be read."""
    annotations = {RELEASE_ANNOTATION: chosen} if chosen else {}
    ground.put(pod_group("a", gang=2, meta=replace(metadata("a"), annotations=annotations)))
    ground.pods(*members("a", 1))
    (_, partial) = written(ground.scene("a", kind="PodGroup"))["a"]["conditions"]
    assert words in partial["message"]


def test_other_conditions_are_left_to_their_writers(ground: ViewFixture) -> None:
    """Only our own are sent; the time of a status that stays is kept."""
    group = pod_group("a", gang=2)
    others = (
        Condition(type="DisruptionTarget", status="True", reason="X", last_transition_time="2026-01-01T00:00:00Z"),
        Condition(type="Healthy", status="False", reason="X", last_transition_time="2026-01-01T00:00:00Z"),
    )
    conditions, _ = merge_conditions((), others, "")
    ground.put(replace(group, status=replace(group.status, conditions=conditions)))
    (only,) = written(ground.scene("a", kind=PodGroup.kind))["a"]["conditions"]
    assert (only["type"], only["lastTransitionTime"]) == ("Healthy", "2026-01-01T00:00:00Z")
