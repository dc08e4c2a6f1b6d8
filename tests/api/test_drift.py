"""What a group differs in from its template, and the condition about it."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.conditions import find_condition
from cpg_api.drift import MATCHES_TEMPLATE, Template, drift_condition, find_differences
from cpg_api.scheduling.forest import Group
from cpg_engine.testing.builders import (
    bare,
    composite,
    constraints,
    disruption,
    inner_template,
    leaf_policy,
    leaf_template,
    pod_group,
)

PLACE = "template t of Workload default/w"
LEAF = pod_group("g", gang=3, key="rack", all_=True, priority=5)


def template(**changed: Any) -> Template:
    """Return the template of ``LEAF``, with some fields changed."""
    whole = replace(leaf_template("t", gang=3), scheduling_constraints=constraints("rack"))
    return replace(whole, **{"disruption_mode": disruption(all_=True), **changed})


def told(group: Group, against: Template | None, *, ignore_minimum: bool = False) -> tuple[str, str, str] | None:
    """Return status, reason and message of the condition to write."""
    found = drift_condition(group, PLACE, against, ignore_minimum=ignore_minimum)
    return None if found is None else (found.status, found.reason, found.message)


def test_a_group_as_its_template_says_gets_no_condition() -> None:
    """Nor does one without a template, or one that takes its fields from there; the default mode is single."""
    assert told(LEAF, template()) is None
    assert told(LEAF, None) is None
    assert told(bare(LEAF), template(scheduling_policy=leaf_policy(7))) is None
    assert told(pod_group("g"), leaf_template("t")) is None


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"scheduling_policy": leaf_policy(4)}, ("minCount", "3", "4")),
        ({"scheduling_policy": leaf_policy(None)}, ("schedulingPolicy", "gang", "basic")),
        ({"disruption_mode": None}, ("disruptionMode", "all", "single")),
        ({"scheduling_constraints": None}, ("required topology", "rack", "none")),
        ({"scheduling_constraints": constraints("block")}, ("required topology", "rack", "block")),
        ({"preemption_policy": "Never"}, ("preemptionPolicy", "PreemptLowerPriority", "Never")),
        ({"priority_class_name": "high"}, ("priorityClassName", "empty", "high")),
        ({"priority": 6}, ("priority", "5", "6")),
    ],
)
def test_each_field_is_compared(changed: dict[str, Any], expected: tuple[str, str, str]) -> None:
    """The difference has the value of the group and that of the template."""
    group = replace(LEAF, spec=replace(LEAF.spec, preemption_policy="PreemptLowerPriority"))
    assert list(find_differences(group, template(**changed))) == [expected]


def test_what_one_side_leaves_open_is_no_difference() -> None:
    """A group without a priority takes that of its template, and a template may leave it to the default class."""
    open_ = replace(LEAF, spec=replace(LEAF.spec, priority=None))
    whole = template(priority_class_name="high", priority=7, preemption_policy="Never")
    assert list(find_differences(open_, whole)) == []
    closed = replace(LEAF, spec=replace(LEAF.spec, priority_class_name="high", preemption_policy="Never"))
    assert list(find_differences(closed, template())) == []


def test_a_composite_group_is_compared_as_well() -> None:
    """Its minimum counts groups."""
    against = inner_template("t", [leaf_template("leaf")])
    (found,) = find_differences(composite("g", gang=2), against)
    assert found == ("minGroupCount", "2", "1")


def test_a_minimum_that_the_operator_sets_is_not_compared() -> None:
    """It would differ for a moment at each change of the template; everything else is compared."""
    changed = template(scheduling_policy=leaf_policy(4))
    assert told(LEAF, changed, ignore_minimum=True) is None
    assert told(LEAF, template(scheduling_policy=leaf_policy(None)), ignore_minimum=True) is not None


def test_the_condition_names_the_template_once_and_goes_back_to_true() -> None:
    """It is written once for each message; where the template vanishes, it is Unknown."""
    wrong = template(scheduling_policy=leaf_policy(4), disruption_mode=None)
    message = f"minCount is 3, {PLACE} has 4; disruptionMode is all, the template has single"
    assert told(LEAF, wrong) == ("False", "Drifted", message)
    drifted = written(LEAF, wrong)
    assert told(drifted, wrong) is None
    assert told(drifted, template()) == ("True", "Matches", f"as {PLACE} says")
    assert told(drifted, None) == ("Unknown", "NoTemplate", f"there is no {PLACE}")
    for later in (written(drifted, template()), written(drifted, None)):
        assert find_condition(later.status.conditions, MATCHES_TEMPLATE) is not None
    assert told(written(drifted, template()), template()) is None
    assert told(written(drifted, None), None) is None


def written(group: Group, against: Template | None) -> Group:
    """Return a group with the condition about it."""
    found = drift_condition(group, PLACE, against, ignore_minimum=False)
    assert found is not None
    return replace(group, status=replace(group.status, conditions=(found,)))
