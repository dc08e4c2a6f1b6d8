"""The step that fills in what a group takes from its template and its priority class."""

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.flavours import NATIVE
from cpg_client.stores import Added
from cpg_engine.testing.builders import bare, composite, disruption, leaf_template, pod_group, priority_class, workload
from cpg_operator.steps.fields import fill_fields
from cpg_operator.testing.fixtures import ViewFixture
from cpg_operator.writes import NOTHING


@pytest.fixture
def fixture() -> ViewFixture:
    """Return a view of a root without its Workload, over groups with a priority, a class, and an unknown class."""
    found = ViewFixture()
    found.view.on_class(Added("high", priority_class("high", 9)))
    found.put(
        composite("root", priority=None),
        with_priority("set"),
        with_class("known", "high"),
        with_class("unknown", "gone"),
    )
    return found


def with_priority(name: str) -> PodGroup:
    """Return a group with nothing to fill in."""
    group = pod_group(name, parent="root", priority=4)
    return replace(group, spec=replace(group.spec, preemption_policy="Never"))


def with_class(name: str, of: str) -> PodGroup:
    """Return a group with a class and no priority."""
    group = pod_group(name, parent="root", priority=None)
    return replace(group, spec=replace(group.spec, priority_class_name=of))


def test_priorities_are_filled_in_once(fixture: ViewFixture) -> None:
    """Only over the version that was seen, because they are immutable then; and not before the class is known."""
    writes = fill_fields(fixture.context()).writes
    filled = {"priority": 9, "preemptionPolicy": "PreemptLowerPriority"}
    assert {one.target.name: one.body["spec"] for one in writes} == {"known": filled}
    assert all(one.unchanged for one in writes)


def test_without_access_to_classes_no_priority_is_filled_in() -> None:
    """A wrong priority could never be corrected; all other fields of the template are known."""
    fixture = ViewFixture(knows_classes=False)
    fixture.put(composite("root", priority=None), with_class("known", "high"))
    assert fill_fields(fixture.context()) == NOTHING
    fixture.put(bare(pod_group("g", workload="v")))
    fixture.put(workload([replace(leaf_template("g", gang=3), priority=7)], name="v"))
    (write,) = fill_fields(fixture.context("g", kind="PodGroup")).writes
    assert msgspec.to_builtins(write.body["spec"]) == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "disruptionMode": {"single": {}},
    }


def test_groups_of_the_native_flavour_are_left_to_admission(fixture: ViewFixture) -> None:
    """The built-in API server fills in their priority."""
    fixture.put(composite("root", priority=None), flavour=NATIVE)
    assert fill_fields(fixture.context(flavour=NATIVE)) == NOTHING


def test_a_template_takes_precedence_over_the_default(fixture: ViewFixture) -> None:
    """Also while the class that it names is missing: nothing is filled in meanwhile."""
    source = workload(
        [replace(leaf_template("leaf"), priority=5), replace(leaf_template("x"), priority_class_name="y")]
    )
    fixture.put(source)
    fixture.put(pod_group("leaf", workload="w", priority=None), pod_group("x", workload="w", priority=None))
    (write,) = fill_fields(fixture.context("leaf", kind="PodGroup")).writes
    assert write.body["spec"]["priority"] == 5
    assert fill_fields(fixture.context("x", kind="PodGroup")).writes == ()


def test_a_group_waits_for_its_workload(fixture: ViewFixture) -> None:
    """Whichever is created first, the group gets the template's priority and not the default."""
    fixture.put(pod_group("g", workload="v", priority=None))
    assert fill_fields(fixture.context("g", kind="PodGroup")) == NOTHING
    fixture.put(workload([replace(leaf_template("g"), priority_class_name="high")], name="v"))
    (write,) = fill_fields(fixture.context("g", kind="PodGroup")).writes
    assert write.body["spec"] == {
        "priority": 9,
        "priorityClassName": "high",
        "preemptionPolicy": "PreemptLowerPriority",
    }


def test_everything_comes_from_the_template_in_one_write(fixture: ViewFixture) -> None:
    """The view keeps what is stored, and the steps see the fields of the template already."""
    fixture.put(bare(pod_group("g", workload="v")))
    fixture.put(workload([replace(leaf_template("g", gang=3), disruption_mode=disruption(all_=True))], name="v"))
    context = fixture.context("g", kind="PodGroup")
    (write,) = fill_fields(context).writes
    assert msgspec.to_builtins(write.body["spec"]) == {
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "disruptionMode": {"all": {}},
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert context.tree.root.minimum == 3
