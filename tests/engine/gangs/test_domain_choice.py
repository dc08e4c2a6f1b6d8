"""Domains: which are open to a group, in which order they are tried, and what the bounds rule out."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.domain_choice import DomainChoice, DomainOffer
from cpg_engine.gangs.needs import Needs
from cpg_engine.testing.decision_case import DecisionCase
from cpg_engine.topology.domains import Scope
from cpg_engine.weights import Weights

NODES = ["n1 2 rack=a", "n2 4 rack=b", "n3 8 rack=c", "n4 8"]
Form = Mapping[str, Any]


def trial(root: Form, pods: Sequence[str | Form], nodes: Sequence[str] = NODES) -> DecisionCase:
    """Return a tree whose root is called so."""
    return DecisionCase(nodes, {"root": root}, pods)


def choices(found: DecisionCase) -> DomainChoice:
    """Return the choices of a trial, with its pins."""
    answer = DomainChoice(found.snapshot, Needs(found.unit), Weights())
    answer.pin()
    return answer


def values(scopes: Sequence[Scope]) -> list[str]:
    """Return the values of the innermost domains."""
    return [scope.chain[-1].value for scope in scopes]


def required(found: DecisionCase) -> DomainOffer:
    """Return what the root may be placed in."""
    return choices(found).required(0, found.snapshot.topology.whole())


def preferred(found: DecisionCase) -> list[str]:
    """Return the domains that the root prefers, in the order in which they are tried."""
    return values(list(choices(found).preferred(0, (found.snapshot.topology.whole(),))))


def test_without_a_key_the_scope_is_all_there_is() -> None:
    """A group without a required label is offered what its parent has."""
    found = trial({"gang": 1}, ["1@root"])
    assert DomainOffer(scopes=(found.snapshot.topology.whole(),)).scopes == required(found).scopes


def test_the_fuller_domain_is_tried_first() -> None:
    """Large gaps stay whole for large groups, and what is too small is not tried at all."""
    assert values(required(trial({"gang": 3, "key": "rack"}, ["3x1@root"])).scopes) == ["b", "c"]


def test_equal_domains_are_tried_in_the_order_of_their_names() -> None:
    """Two runs agree, whatever came first."""
    nodes = ["n1 2 rack=b", "n2 2 rack=a", "n3 2 rack=c"]
    assert values(required(trial({"gang": 1, "key": "rack"}, ["1@root"], nodes)).scopes) == ["a", "b", "c"]


def test_the_survey_tells_how_the_domains_stand() -> None:
    """Each domain has its room, and says how many of the group's pods that comes to."""
    survey = required(trial({"gang": 3, "key": "rack"}, ["5x1@root"])).survey
    assert survey is not None
    assert survey.fits.tolist() == [2, 4, 5]
    assert [room.tolist() for room in survey.room.values()] == [[2, 4, 8]]
    assert survey.open.tolist() == [True, True, True]
    assert survey.able.tolist() == [False, True, True]


def test_a_running_member_leaves_one_domain_open() -> None:
    """It is the only one to be tried, also where it is the worst."""
    offer = required(trial({"gang": 2, "key": "rack"}, ["1@root on n1", "1@root"]))
    assert values(offer.scopes) == ["a"]
    assert offer.survey is not None
    assert offer.survey.open.tolist() == [True, False, False]


def test_a_running_member_without_room_leaves_none() -> None:
    """Its domain is full, and no other is open."""
    offer = required(trial({"gang": 2, "key": "rack"}, ["2@root on n1", "1@root"]))
    assert not offer.scopes


def test_members_pin_at_every_level() -> None:
    """A member below a child holds the child's rack and the root's block, and no other child's rack."""
    nodes = ["n1 2 block=x rack=a", "n2 2 block=x rack=b", "n3 2 block=y rack=c"]
    below = {"pg1": {"gang": 1, "key": "rack"}, "pg2": {"gang": 1, "key": "rack"}}
    found = trial({"gang": 2, "key": "block", "children": below}, ["1@pg1 on n1", "1@pg1", "1@pg2"], nodes)
    own = choices(found)
    (block,) = own.required(0, found.snapshot.topology.whole()).scopes
    assert block.chain[-1].value == "x"
    assert [values(own.required(child, block).scopes) for child in (1, 2)] == [["a"], ["a", "b"]]


def test_members_on_nodes_that_are_gone_hold_nothing() -> None:
    """Nobody knows any more which rack that was."""
    found = trial({"gang": 2, "key": "rack"}, ["1@root on gone", "1@root"])
    assert len(required(found).scopes) == 3


@pytest.mark.parametrize(
    ("home", "domains"),
    [
        ("n2", ("a", "b")),
        ("n4", ()),
    ],
)
def test_members_in_several_domains_contradict_their_group(home: str, domains: tuple[str, ...]) -> None:
    """The error names the group and what is wrong."""
    with pytest.raises(ContradictionError) as caught:
        required(trial({"gang": 3, "key": "rack"}, ["1@root on n1", f"1@root on {home}", "1@root"]))
    found = caught.value.contradiction
    assert (found.group.name, found.key, found.domains) == ("root", "rack", domains)


def test_groups_that_cannot_be_admitted_contradict_nothing() -> None:
    """They are not placed, so where they run does not matter."""
    root = {"children": {"pg1": {"gang": 3, "key": "rack"}, "pg2": None}}
    assert required(trial(root, ["1@pg1 on n1", "1@pg1 on n2", "1@pg2"])).scopes


def test_a_preferred_domain_is_one_that_could_hold_the_minimum() -> None:
    """The order is that of required ones; without a preference there are none."""
    assert preferred(trial({"gang": 3, "preferred": "rack"}, ["3x1@root"])) == ["b", "c"]
    assert preferred(trial({"gang": 3}, ["3x1@root"])) == []


def test_a_running_member_is_a_preference_for_its_domain() -> None:
    """Late pods are drawn to it; members in several domains draw nobody."""
    assert preferred(trial({"gang": 1, "preferred": "rack"}, ["1@root on n1", "1@root"])) == ["a"]
    assert preferred(trial({"gang": 1, "preferred": "rack"}, ["1@root on n1", "1@root on n2", "1@root"])) == []
    assert preferred(trial({"gang": 1, "preferred": "rack"}, ["1@root on n4", "1@root"])) == []


def test_preferred_domains_lie_inside_required_ones() -> None:
    """A rack is preferred inside each block that is required, the better block first."""
    nodes = ["n1 2 block=x rack=a", "n2 2 block=y rack=a", "n3 2 block=y rack=b"]
    found = trial({"gang": 2, "key": "block", "preferred": "rack"}, ["2x1@root"], nodes)
    own = choices(found)
    outer = own.required(0, found.snapshot.topology.whole()).scopes
    chains = [[domain.value for domain in scope.chain] for scope in own.preferred(0, outer)]
    assert chains == [["x", "a"], ["y", "a"], ["y", "b"]]


def test_beyond_the_minimum_only_required_domains_hold() -> None:
    """The widest scope is the required domain in which the group was placed, or whatever its parent has."""
    found = trial({"gang": 1, "key": "rack"}, ["1@root"])
    whole = found.snapshot.topology.whole()
    (first, *_) = required(found).scopes
    nowhere = Scope(chain=(), rows=whole.rows[:0])
    assert first is choices(found).widest(0, first, whole)
    assert nowhere is choices(found).widest(0, nowhere, whole)
    assert whole is choices(trial({"gang": 1}, ["1@root"])).widest(0, first, whole)


@pytest.mark.parametrize(
    ("root", "pods", "possible"),
    [
        ({"gang": 3, "key": "rack"}, ["3x1@root"], True),
        ({"gang": 9, "key": "rack"}, ["9x1@root"], False),
        ({"gang": 22}, ["22x1@root"], True),
        ({"gang": 23}, ["23x1@root"], False),
        ({"gang": 2}, ["1@root"], False),
        ({"gang": 1, "key": "row"}, [{"pod": "1@root", "phase": "Succeeded"}], True),
        ({"children": {"pg1": {"gang": 9, "key": "rack"}, "pg2": {"gang": 1}}}, ["9x1@pg1", "1@pg2"], True),
        ({"gang": 2, "children": {"pg1": {"gang": 9, "key": "rack"}, "pg2": None}}, ["9x1@pg1", "1@pg2"], False),
        ({"key": "rack", "children": {"pg1": {"gang": 1, "key": "row"}}}, ["1@pg1"], False),
    ],
)
def test_the_bounds_tell_what_is_impossible(root: Form, pods: list[str | Form], possible: bool) -> None:  # noqa: FBT001
    """Children are taken for themselves, each with the labels that it requires; what is met needs nothing."""
    found = trial(root, pods)
    assert possible is choices(found).possible(0, found.snapshot.topology.whole())
