"""The annotation that says which pods a group will have, and the stand-ins for those that do not exist."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodSpec
from cpg_api.scheduling.expected import (
    MAX_EXPECTED_PODS,
    MAX_LENGTH,
    UID_PREFIX,
    ExpectedPods,
    ExpectedPodsError,
    encode_expected_pods,
    missing_pods,
    read_expected_pods,
    templates_expected_pods,
)
from cpg_api.scheduling.forest import Forest, Group, GroupKey
from cpg_api.scheduling.names import EXPECTED_PODS
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.validation import ValidationContext, validate
from cpg_engine.testing.builders import composite, leaf_template, pod, pod_group, workload

KEY = GroupKey("PodGroup", "default", "pg")
SMALL = PodSpec(node_selector={"disk": "ssd"})


def annotated(group: Group, text: str) -> Group:
    """Return a group with the annotation."""
    return replace(group, metadata=replace(group.metadata, annotations={EXPECTED_PODS: text}))


def names(found: tuple[Pod, ...]) -> list[str]:
    """Return the names of pods."""
    return [one.metadata.name for one in found]


def test_a_group_says_which_pods_it_will_have() -> None:
    """Each entry is a count, with the spec of the pods where it is known; other kinds of groups have no pods."""
    text = '[{"count": 1}, {"count": 2, "spec": {"nodeSelector": {"disk": "ssd"}}}]'
    assert read_expected_pods(annotated(pod_group("pg"), text)) == (ExpectedPods(1), ExpectedPods(2, SMALL))
    assert read_expected_pods(annotated(composite("pg"), text)) == ()
    assert read_expected_pods(pod_group("pg")) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is no list"),
        ('{"count": 1}', "it is no list"),
        ('[{"count": -1}]', "its counts are not from 0"),
        (json.dumps([{"count": MAX_EXPECTED_PODS}, {"count": 1}]), "its counts are not from 0"),
        (" " * MAX_LENGTH + "[]", "it has more than"),
    ],
)
def test_a_malformed_annotation_is_a_problem_of_the_tree(text: str, problem: str) -> None:
    """The tree is invalid, because its pods would be placed without room for the others."""
    group = annotated(pod_group("pg"), text)
    with pytest.raises(ExpectedPodsError, match=problem):
        read_expected_pods(group)
    (tree,) = Forest.of([group]).trees()
    (found,) = validate(tree, ValidationContext(workloads={}, classes=PriorityClasses(by_name={})))
    assert f"PodGroup default/pg has an invalid annotation {EXPECTED_PODS}: {problem}" in found.message


def test_a_well_formed_annotation_is_no_problem() -> None:
    """Nor is one that expects no pods."""
    (tree,) = Forest.of([annotated(pod_group("pg"), '[{"count": 0}]')]).trees()
    assert validate(tree, ValidationContext(workloads={}, classes=PriorityClasses(by_name={}))) == ()


def test_a_workload_has_the_lists_by_template() -> None:
    """What is written is read, and passed on to groups as it is."""
    text = encode_expected_pods({"workers": (ExpectedPods(2),), "driver": (ExpectedPods(1, SMALL),)})
    source = workload([leaf_template("workers")])
    source = replace(source, metadata=replace(source.metadata, annotations={EXPECTED_PODS: text}))
    found = templates_expected_pods(source)
    assert sorted(found) == ["driver", "workers"]
    read = {name: read_expected_pods(annotated(pod_group("pg"), entries)) for name, entries in found.items()}
    assert read == {"workers": (ExpectedPods(2),), "driver": (ExpectedPods(1, SMALL),)}
    assert encode_expected_pods({}) == ""


@pytest.mark.parametrize("text", ["", "[]", "{"])
def test_a_malformed_annotation_of_a_workload_gives_nothing(text: str) -> None:
    """Its groups expect no pods."""
    source = workload([leaf_template("workers")])
    assert templates_expected_pods(source) == {}
    source = replace(source, metadata=replace(source.metadata, annotations={EXPECTED_PODS: text}))
    assert templates_expected_pods(source) == {}


@pytest.mark.parametrize(("existing", "missing"), [(1, 4), (2, 3), (3, 2), (5, 0), (7, 0)])
def test_existing_pods_count_for_the_first_entries(existing: int, missing: int) -> None:
    """So the leader, which comes first, is not expected once it exists."""
    entries = (ExpectedPods(2), ExpectedPods(3, SMALL))
    pods = [pod(f"p{number}", group="pg") for number in range(existing)]
    found = missing_pods(KEY, entries, pods)
    assert names(found) == [f"pg-expected-{number}" for number in range(missing)]
    assert sum(one.spec.node_selector == {"disk": "ssd"} for one in found) == min(missing, 3)


def test_a_pod_without_a_spec_is_like_the_oldest() -> None:
    """It asks for the same, but not for a node, volumes or the end of gates."""
    fields: dict[str, Any] = {"cpu": 2, "node_name": "n", "node_selector": {"disk": "ssd"}}
    old, young = pod("b", group="pg", **fields), pod("a", group="pg", cpu=1)
    young = replace(young, metadata=replace(young.metadata, creation_timestamp="2030"))
    (found,) = missing_pods(KEY, (ExpectedPods(3),), (young, old))
    assert found.metadata.uid == f"{UID_PREFIX}default/pg/0"
    assert found.metadata.labels == old.metadata.labels
    assert found.spec == replace(old.spec, node_name="")


def test_nothing_is_expected_where_nothing_is_known_about_a_pod() -> None:
    """A group without pods expects those with a spec, unless there are others of which nothing is known."""
    assert missing_pods(KEY, (ExpectedPods(2, SMALL), ExpectedPods(1)), ()) == ()
    (found,) = missing_pods(KEY, (ExpectedPods(1, SMALL),), ())
    assert (found.spec, found.metadata.labels) == (SMALL, {})
