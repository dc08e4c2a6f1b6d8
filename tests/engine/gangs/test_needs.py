"""What a unit needs at least, and which domains are too small by the bounds."""

import numpy as np
import pytest

from cpg_api.scheduling.forest import Forest, Group, key_of
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.gangs.bounds import could_hold, fitting
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.unit import GroupPods, tree_unit
from cpg_engine.testing.builders import composite, pod, pod_group

Kinds = dict[str, str]
"""By the name of a leaf, its pods: a letter a pod, pods of one letter alike."""

ROOT = composite("root", gang=2)
A = pod_group("a", gang=2, parent="root")
B = pod_group("b", gang=3, parent="root")
C = pod_group("c", gang=1, parent="root")


def needs_of(groups: list[Group], kinds: Kinds, settled: dict[str, int] | None = None) -> Needs:
    """Return the needs of the tree of these groups; classes are numbered x, y, z."""
    ledger = Ledger()
    cpu = {letter: number + 1 for number, letter in enumerate("xyz")}
    _held = [ledger.class_of(pod(letter, cpu=amount)) for letter, amount in cpu.items()]
    members = {}
    for group in groups:
        name = group.metadata.name
        pending = [pod(f"{name}{place:02}", cpu=cpu[letter]) for place, letter in enumerate(kinds.get(name, ""))]
        done = [pod(f"{name}-done-{number}", node_name="n") for number in range((settled or {}).get(name, 0))]
        members[key_of(group)] = GroupPods(pending=pending, scheduled=done)
    (tree,) = Forest.of(groups).trees()
    return Needs(tree_unit(tree, members, ledger))


def room(**letters: list[int]) -> dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the room for each class in each domain."""
    return {"xyz".index(letter): np.array(numbers) for letter, numbers in letters.items()}


@pytest.mark.parametrize(
    ("pods", "settled", "admissible", "met", "least"),
    [
        ("xxx", 0, True, False, {0: 3}),
        ("xx", 0, False, False, {0: 3}),
        ("xx", 1, True, False, {0: 2}),
        ("x", 3, True, True, {0: 0}),
        ("", 3, True, True, {}),
        ("", 0, False, False, {}),
        ("xxyy", 0, True, False, {0: 1, 1: 1}),  # two of the other kind serve first
        ("xxxxy", 0, True, False, {0: 2, 1: 0}),
    ],
)
def test_a_leaf_needs_its_minimum(
    *, pods: str, settled: int, admissible: bool, met: bool, least: dict[int, int]
) -> None:
    """Scheduled members count; of each class, at least what the other classes cannot make up for."""
    needs = needs_of([pod_group("g", gang=3)], {"g": pods}, {"g": settled})
    assert ([admissible], [met]) == (needs.admissible, needs.met)
    assert least == dict(needs.least[0])
    assert ([len(pods)], max(3 - settled, 0)) == (needs.total, needs.missing(needs.unit.nodes[0]))


def test_a_group_needs_its_cheapest_children() -> None:
    """Two of three children, which need 2, 3 and 1 pods, need at least 3; all pods are 7."""
    needs = needs_of([ROOT, A, B, C], {"a": "xx", "b": "xxxx", "c": "x"})
    assert (dict(needs.least[0]), dict(needs.most[0]), needs.total[0]) == ({0: 3}, {0: 7}, 7)
    assert needs.admissible[0]


def test_children_that_cannot_be_admitted_do_not_help() -> None:
    """The cheapest child has no pods: the others must serve, and with two such children the group is inadmissible."""
    needs = needs_of([ROOT, A, B, C], {"a": "xx", "b": "xxx"})
    assert (needs.admissible[0], dict(needs.least[0])) == (True, {0: 5})
    assert not needs_of([ROOT, A, B, C], {"a": "xx"}).admissible[0]


def test_a_group_is_met_when_enough_children_are() -> None:
    """Children with enough running members need no place."""
    assert needs_of([ROOT, A, C], {}, {"a": 2, "c": 1}).met[0]
    assert not needs_of([ROOT, A, C], {"c": "x"}, {"a": 2}).met[0]


@pytest.mark.parametrize(
    ("x", "y", "holds"),
    [
        ([2, 1, 0], [9, 9, 9], [1, 1, 1]),  # two of xyy may both be y
        ([1, 0, 0], [1, 1, 2], [1, 0, 1]),
        ([9, 9, 9], [0, 1, 2], [0, 1, 1]),  # one x alone is not two
    ],
)
def test_a_domain_must_have_room_for_the_minimum_of_a_leaf(x: list[int], y: list[int], holds: list[int]) -> None:
    """Of an x and two y, any two: the room for each class counts up to the pods of that class."""
    needs = needs_of([pod_group("g", gang=2)], {"g": "xyy"})
    assert holds == could_hold(needs, 0, room(x=x, y=y), 3).astype(int).tolist()


def test_a_domain_must_have_room_for_enough_children() -> None:
    """The root needs two of its children in one domain: by the sum of what they need, and each alone."""
    needs = needs_of([ROOT, A, B, C], {"a": "xx", "b": "yyy", "c": "z"})
    holds = could_hold(needs, 0, room(x=[2, 2, 1, 0], y=[3, 0, 3, 0], z=[0, 1, 1, 1]), 4)
    assert holds.tolist() == [True, True, True, False]
    alike = needs_of([ROOT, A, B], {"a": "xx", "b": "xxx"})
    assert could_hold(alike, 0, room(x=[4, 5]), 2).tolist() == [False, True]


def test_an_inadmissible_group_fits_nowhere() -> None:
    """Every domain rejects a group without enough pods."""
    needs = needs_of([pod_group("g", gang=2)], {"g": "x"})
    assert could_hold(needs, 0, room(x=[9, 9]), 2).tolist() == [False, False]


def test_fitting_counts_up_to_the_existing_pods() -> None:
    """Room for nine x counts as two where there are two; the sum is over all classes."""
    needs = needs_of([pod_group("g", gang=2)], {"g": "xxyyy"})
    assert fitting(needs, 0, room(x=[9, 1, 0], y=[9, 0, 0]), 3).tolist() == [5, 1, 0]


@pytest.mark.parametrize(
    ("groups", "kinds", "alike"),
    [
        ([pod_group("g", gang=1)], {"g": "xx"}, True),
        ([pod_group("g", gang=1)], {"g": "xy"}, False),
        ([pod_group("g", gang=1)], {}, True),
        ([ROOT, A, B], {"a": "xx", "b": "xxx"}, True),
        ([ROOT, pod_group("a", parent="root", key="rack"), B], {"a": "xx", "b": "xxx"}, False),
        (
            [ROOT, pod_group("a", parent="root", key="rack"), pod_group("b", parent="root", key="rack")],
            {"a": "x", "b": "x"},
            True,
        ),
    ],
)
def test_pods_are_interchangeable_if_identical_under_the_same_labels(
    groups: list[Group], kinds: Kinds, *, alike: bool
) -> None:
    """With one class of pods, and the same labels for all leaves, it does not matter which pod goes where."""
    assert alike is needs_of(groups, kinds).interchangeable
