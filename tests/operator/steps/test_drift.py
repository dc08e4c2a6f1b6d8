"""The step that writes which groups differ from their templates."""

from unittest.mock import patch

import pytest
from msgspec.structs import replace

from cpg_api.drift import MATCHES_TEMPLATE
from cpg_api.meta import Condition, OwnerReference
from cpg_api.scheduling import templates
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import INSTANTIATE
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD, NATIVE
from cpg_engine.testing.builders import composite, inner_template, leaf_template, pod, pod_group, workload
from cpg_operator.steps.drift import report_drift
from cpg_operator.testing.fixtures import TIMESTAMP, ViewFixture
from cpg_operator.writes import DRIFT_MANAGER, NOTHING, Verb

TEMPLATES = workload([inner_template("root", [leaf_template("a", gang=2), leaf_template("b")])])


def tree(*, root_minimum: int = 1) -> list[Group]:
    """Return a tree of which only ``a`` has another minimum than its template."""
    return [
        composite("root", gang=root_minimum),
        pod_group("a", gang=1, parent="root"),
        pod_group("b", parent="root"),
    ]


def fixture_of(*objects: Group | Workload, flavour: str = CRD) -> ViewFixture:
    """Return a view of a tree with a pod of ours."""
    fixture = ViewFixture()
    fixture.put(*objects, flavour=flavour)
    fixture.add_pods(pod("p", group="a"))
    return fixture


@pytest.mark.parametrize("flavour", [CRD, NATIVE])
def test_a_group_that_differs_gets_the_condition(flavour: str) -> None:
    """Of a manager of its own; the other groups get nothing."""
    context = fixture_of(*tree(), TEMPLATES, flavour=flavour).context(flavour=flavour)
    (write,) = report_drift(context).writes
    (condition,) = write.body["conditions"]
    assert (write.target.name, write.verb, write.manager) == ("a", Verb.APPLY_STATUS, DRIFT_MANAGER)
    assert (condition.status, condition.reason, condition.last_transition_time) == ("False", "Drifted", TIMESTAMP)
    assert condition.message == "minCount is 1, template a of Workload default/w has 2"


def test_without_templates_nothing_is_written() -> None:
    """The Workload is missing, lacks the template, has it for the other kind, or the group names none."""
    assert report_drift(fixture_of(*tree()).context()) == NOTHING
    other = workload([inner_template("other", [leaf_template("root", gang=7)])])
    assert report_drift(fixture_of(*tree(), other).context()) == NOTHING
    assert report_drift(fixture_of(pod_group("a")).context("a", kind="PodGroup")) == NOTHING


def test_a_foreign_tree_gets_nothing() -> None:
    """Its scheduler may have rules of its own."""
    fixture = ViewFixture()
    fixture.put(*tree(), TEMPLATES, flavour=NATIVE)
    assert report_drift(fixture.context(flavour=NATIVE)) == NOTHING


def test_a_tree_that_becomes_foreign_loses_the_condition() -> None:
    """Once: the operator of the other scheduler may be another kube-cpg."""
    drifted, *others = tree()[1:]
    conditions = (Condition(MATCHES_TEMPLATE, "False", reason="Drifted"), Condition("Healthy", "True"))
    drifted = replace(drifted, status=replace(drifted.status, conditions=conditions))
    fixture = ViewFixture()
    fixture.put(tree()[0], drifted, *others, TEMPLATES)
    member = pod("p", group="a")
    fixture.add_pods(replace(member, spec=replace(member.spec, scheduler_name="other")))
    (write,) = report_drift(fixture.context()).writes
    assert (write.target.name, write.verb, write.body, write.once) == ("a", Verb.APPLY_STATUS, {"conditions": []}, True)
    assert write.manager == DRIFT_MANAGER


def test_templates_are_walked_once_for_each_workload() -> None:
    """Also in a tree of thousands of groups."""
    groups: list[Group] = [composite("root")]
    groups += [pod_group(f"b-{number}", parent="root", template="b") for number in range(50)]
    with patch.object(templates, "walk_templates", wraps=templates.walk_templates) as walks:
        assert report_drift(fixture_of(*groups, replace(TEMPLATES)).context()) == NOTHING
    assert walks.call_count == 1


@pytest.mark.parametrize(("flavour", "reported"), [(CRD, []), (NATIVE, ["root"])])
def test_a_minimum_that_the_operator_resets_is_no_drift(flavour: str, reported: list[str]) -> None:
    """Of native composite groups it cannot change it; groups of the same Workload made by hand are compared."""
    asking = replace(TEMPLATES, metadata=replace(TEMPLATES.metadata, annotations={INSTANTIATE: "true"}))
    owner = OwnerReference(kind="Workload", name="w", uid=asking.metadata.uid, controller=True)
    groups = tree(root_minimum=2)
    owned = [replace(one, metadata=replace(one.metadata, owner_references=(owner,))) for one in groups]
    context = fixture_of(*owned, asking, flavour=flavour).context(flavour=flavour)
    assert [one.target.name for one in report_drift(context).writes] == reported
    context = fixture_of(*groups, asking, flavour=flavour).context(flavour=flavour)
    assert [one.target.name for one in report_drift(context).writes] == ["root", "a"]
