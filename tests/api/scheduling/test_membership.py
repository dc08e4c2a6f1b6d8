"""Membership: three places for the name of a group, and the problems with them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpg_api.core.pod import Pod, PodSpec, SchedulingGroup
from cpg_api.meta import ObjectMeta
from cpg_api.problems import Problem
from cpg_api.scheduling.membership import (
    ANNOTATION_PATH,
    LABEL_PATH,
    NATIVE_PATH,
    NO_GROUP,
    Membership,
    membership,
    membership_entries,
)
from cpg_api.scheduling.names import POD_GROUP_LABEL

LONG = ".".join(["a" * 63] * 4)[:253]


def pod(*, native: str | None = None, label: str | None = None, annotation: str | None = None) -> Pod:
    """Build a pod that names its group in these places."""
    return Pod(
        ObjectMeta(
            labels={"app": "x"} if label is None else {"app": "x", POD_GROUP_LABEL: label},
            annotations={} if annotation is None else {POD_GROUP_LABEL: annotation},
        ),
        PodSpec(scheduling_group=None if native is None else SchedulingGroup(native)),
    )


def problem(found: Membership) -> Problem:
    """Return the problem of a membership without a group."""
    assert found.group is None
    assert found.problem is not None
    return found.problem


def test_a_pod_without_a_group() -> None:
    """A pod that names no group has none, also where the native field is empty."""
    assert membership(pod()) is NO_GROUP
    assert membership(Pod(spec=PodSpec(scheduling_group=SchedulingGroup()))) == Membership()


@pytest.mark.parametrize(
    ("member", "path"),
    [
        (pod(native="g"), NATIVE_PATH),
        (pod(label="g"), LABEL_PATH),
        (pod(annotation="g"), ANNOTATION_PATH),
        (pod(native="g", label="g"), NATIVE_PATH),
        (pod(label="g", annotation="g"), LABEL_PATH),
        (pod(native="g", label="g", annotation="g"), NATIVE_PATH),
    ],
)
def test_each_place_counts_and_several_may_agree(member: Pod, path: str) -> None:
    """The result has the first place where the name was found."""
    assert membership(member) == Membership("g", path)


def test_names_longer_than_a_label_are_in_the_annotation() -> None:
    """Up to 253 characters are allowed."""
    assert len(LONG) == 253
    assert membership(pod(annotation=LONG)) == Membership(LONG, ANNOTATION_PATH)
    assert problem(membership(pod(annotation=LONG + "a"))).path == ANNOTATION_PATH


def test_two_different_groups_are_a_problem() -> None:
    """The pod has no group then, and the message names both groups and the other place."""
    assert problem(membership(pod(native="a", label="b"))) == Problem(
        LABEL_PATH, f"The pod is in group 'b' here, but in 'a' at {NATIVE_PATH}."
    )
    assert problem(membership(pod(label="a", annotation="b"))).path == ANNOTATION_PATH
    assert problem(membership(pod(native="a", label="a", annotation="b"))).path == ANNOTATION_PATH


def test_the_paths_are_those_of_the_pod() -> None:
    """The path of a label has its full key."""
    assert LABEL_PATH == "metadata.labels[scheduling.cpg.dev/pod-group]"
    assert ANNOTATION_PATH == "metadata.annotations[scheduling.cpg.dev/pod-group]"


@pytest.mark.parametrize("name", ["Group", "-a", "a-", "a_b", "a..b", ".a", "a.", "a b", "ü", "a\n", " a"])
def test_invalid_group_names_are_a_problem(name: str) -> None:
    """The message quotes the name and states the rule."""
    found = problem(membership(pod(label=name)))
    assert found.path == LABEL_PATH
    assert found.message.startswith(f"{name!r} cannot be the name of a PodGroup, which has at most 253 lower-case")


def test_an_empty_name_is_a_problem() -> None:
    """An empty label is more likely a template error than the wish for no group."""
    found = problem(membership(pod(label="")))
    assert found.message.startswith("The name of the pod's group is empty;")


@settings(max_examples=150)
@given(*[st.sampled_from([None, None, "a", "b", "c.d", "A", ""])] * 3)
def test_any_three_places_give_a_group_or_a_problem(
    native: str | None, label: str | None, annotation: str | None
) -> None:
    """There is a group exactly where all places that are set have one valid name."""
    found = membership(pod(native=native, label=label, annotation=annotation))
    said = {name for name in (native, label, annotation) if name is not None}
    agreed = said.pop() if len(said) == 1 else None
    assert found.group == (agreed if agreed in {"a", "b", "c.d"} else None)
    assert (found.problem is None) == (found.group is not None or (native, label, annotation) == (None, None, None))
    assert bool(found.found_at) == (found.group is not None)


def test_the_entries_that_say_where_a_pod_belongs() -> None:
    """What is kept of labels and annotations by readers that need no others."""
    assert membership_entries({"app": "x", POD_GROUP_LABEL: "g"}) == {POD_GROUP_LABEL: "g"}
    assert membership_entries({"app": "x"}) == {}
