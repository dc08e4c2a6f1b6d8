"""What is written down of what a group takes from its template and its class."""

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.flavours import CRD, NATIVE
from cpg_client.stores import Added
from cpg_engine.testing.builders import bare, composite, disruption, leaf_template, pod_group, priority_class, workload
from cpg_operator.steps.fields import fill
from cpg_operator.testing.fixtures import ViewFixture
from cpg_operator.writes import NOTHING


@pytest.fixture
def ground() -> ViewFixture:
    """Return a view of a root that waits for its Workload's word over groups with a number, a class, an unknown one."""
    found = ViewFixture()
    found.view.on_class(Added("high", priority_class("high", 9)))
    found.put(
        composite("root", priority=None),
        numbered("set"),
        named("known", "high"),
        named("unknown", "gone"),
    )
    return found


def numbered(name: str) -> PodGroup:
    """Return a group with nothing to be filled in."""
    group = pod_group(name, parent="root", priority=4)
    return replace(group, spec=replace(group.spec, preemption_policy="Never"))


def named(name: str, of: str) -> PodGroup:
    """Return a group with a class and no number."""
    group = pod_group(name, parent="root", priority=None)
    return replace(group, spec=replace(group.spec, priority_class_name=of))


def test_numbers_are_filled_in_once(ground: ViewFixture) -> None:
    """Over the very state that was seen, because what is written then is immutable; and not before it is known."""
    writes = fill(ground.scene()).writes
    filled = {"priority": 9, "preemptionPolicy": "PreemptLowerPriority"}
    assert {one.target.name: one.body["spec"] for one in writes} == {"known": filled}
    assert all(one.unchanged for one in writes)


def test_who_does_not_see_the_classes_fills_in_no_priority(ground: ViewFixture) -> None:
    """A wrong number could never be mended; what the template says of all else is known."""
    ground.view.knows_classes = False
    assert fill(ground.scene()) == NOTHING
    ground.put(bare(pod_group("g", workload="v")))
    ground.view.put(CRD, workload([replace(leaf_template("g", gang=3), priority=7)], name="v"))
    (write,) = fill(ground.scene("g", kind="PodGroup")).writes
    assert msgspec.to_builtins(write.body["spec"]) == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "disruptionMode": {"single": {}},
    }


def test_the_native_flavour_has_its_admission_for_that(ground: ViewFixture) -> None:
    """We leave it alone."""
    ground.put(composite("root", priority=None), flavour=NATIVE)
    assert fill(ground.scene(flavour=NATIVE)) == NOTHING


def test_a_template_comes_before_the_default(ground: ViewFixture) -> None:
    """Also while the class that it names is not there yet: nothing else is filled in meanwhile."""
    source = workload(
        [replace(leaf_template("leaf"), priority=5), replace(leaf_template("x"), priority_class_name="y")]
    )
    ground.view.put(CRD, source)
    ground.put(pod_group("leaf", workload="w", priority=None), pod_group("x", workload="w", priority=None))
    (write,) = fill(ground.scene("leaf", kind="PodGroup")).writes
    assert write.body["spec"]["priority"] == 5
    assert fill(ground.scene("x", kind="PodGroup")).writes == ()


def test_a_group_waits_for_the_word_of_its_workload(ground: ViewFixture) -> None:
    """Whichever comes first, the group has the template's priority, and never a default for good."""
    ground.put(pod_group("g", workload="v", priority=None))
    assert fill(ground.scene("g", kind="PodGroup")) == NOTHING
    ground.view.put(CRD, workload([replace(leaf_template("g"), priority_class_name="high")], name="v"))
    (write,) = fill(ground.scene("g", kind="PodGroup")).writes
    assert write.body["spec"] == {
        "priority": 9,
        "priorityClassName": "high",
        "preemptionPolicy": "PreemptLowerPriority",
    }


def test_everything_comes_from_the_template_in_one_write(ground: ViewFixture) -> None:
    """As it is sent; the view keeps what is there, and the steps see what will be."""
    ground.put(bare(pod_group("g", workload="v")))
    ground.view.put(
        CRD, workload([replace(leaf_template("g", gang=3), disruption_mode=disruption(all_=True))], name="v")
    )
    scene = ground.scene("g", kind="PodGroup")
    (write,) = fill(scene).writes
    assert msgspec.to_builtins(write.body["spec"]) == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "disruptionMode": {"all": {}},
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert scene.tree.root.minimum == 3
