"""Domains: which are open to a group, their order, and what the bounds rule out."""

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


def case_of(root: Form, pods: Sequence[str | Form], nodes: Sequence[str] = NODES) -> DecisionCase:
    """Return a case of a tree with this root."""
    return DecisionCase(nodes, {"root": root}, pods)


def domain_choice(found: DecisionCase) -> DomainChoice:
    """Return the domain choice of a case, with its pins."""
    answer = DomainChoice(found.snapshot, Needs(found.unit), Weights())
    answer.pin()
    return answer


def values(scopes: Sequence[Scope]) -> list[str]:
    """Return the values of the innermost domains."""
    return [scope.chain[-1].value for scope in scopes]


def required(found: DecisionCase) -> DomainOffer:
    """Return the offer for the root."""
    return domain_choice(found).required(0, found.snapshot.topology.whole())


def preferred(found: DecisionCase) -> list[str]:
    """Return the domains that the root prefers, in the order in which they are tried."""
    return values(list(domain_choice(found).preferred(0, (found.snapshot.topology.whole(),))))


def test_without_a_key_the_offer_is_the_scope() -> None:
    """A group without a required label is offered what its parent has."""
    found = case_of({"gang": 1}, ["1@root"])
    assert DomainOffer(scopes=(found.snapshot.topology.whole(),)).scopes == required(found).scopes


def test_the_fuller_domain_is_tried_first() -> None:
    """Large gaps stay whole for large groups, and domains that are too small are not tried."""
    assert values(required(case_of({"gang": 3, "key": "rack"}, ["3x1@root"])).scopes) == ["b", "c"]


def test_equal_domains_are_tried_in_the_order_of_their_names() -> None:
    """Two runs agree, whatever the order of arrival."""
    nodes = ["n1 2 rack=b", "n2 2 rack=a", "n3 2 rack=c"]
    assert values(required(case_of({"gang": 1, "key": "rack"}, ["1@root"], nodes)).scopes) == ["a", "b", "c"]


def test_the_survey_has_the_room_of_the_domains() -> None:
    """For each domain, by class, and for how many of the group's pods that is."""
    survey = required(case_of({"gang": 3, "key": "rack"}, ["5x1@root"])).survey
    assert survey is not None
    assert survey.fits.tolist() == [2, 4, 5]
    assert [room.tolist() for room in survey.room.values()] == [[2, 4, 8]]
    assert survey.open.tolist() == [True, True, True]
    assert survey.able.tolist() == [False, True, True]


def test_a_running_member_leaves_one_domain_open() -> None:
    """It is the only one to be tried, even if it is the worst."""
    offer = required(case_of({"gang": 2, "key": "rack"}, ["1@root on n1", "1@root"]))
    assert values(offer.scopes) == ["a"]
    assert offer.survey is not None
    assert offer.survey.open.tolist() == [True, False, False]


def test_a_running_member_without_room_leaves_none() -> None:
    """Its domain is full, and no other is open."""
    offer = required(case_of({"gang": 2, "key": "rack"}, ["2@root on n1", "1@root"]))
    assert not offer.scopes


def test_members_pin_at_every_level() -> None:
    """A member below a child pins the child's rack and the root's block, and no other child's rack."""
    nodes = ["n1 2 block=x rack=a", "n2 2 block=x rack=b", "n3 2 block=y rack=c"]
    below = {"pg1": {"gang": 1, "key": "rack"}, "pg2": {"gang": 1, "key": "rack"}}
    found = case_of({"gang": 2, "key": "block", "children": below}, ["1@pg1 on n1", "1@pg1", "1@pg2"], nodes)
    own = domain_choice(found)
    (block,) = own.required(0, found.snapshot.topology.whole()).scopes
    assert block.chain[-1].value == "x"
    assert [values(own.required(child, block).scopes) for child in (1, 2)] == [["a"], ["a", "b"]]


def test_members_on_removed_nodes_pin_nothing() -> None:
    """Their rack is not known any more."""
    found = case_of({"gang": 2, "key": "rack"}, ["1@root on gone", "1@root"])
    assert len(required(found).scopes) == 3


@pytest.mark.parametrize(
    ("home", "domains"),
    [
        ("n2", ("a", "b")),
        ("n4", ()),
    ],
)
def test_members_in_several_domains_contradict_their_group(home: str, domains: tuple[str, ...]) -> None:
    """The error names the group, the label and the domains."""
    with pytest.raises(ContradictionError) as caught:
        required(case_of({"gang": 3, "key": "rack"}, ["1@root on n1", f"1@root on {home}", "1@root"]))
    found = caught.value.contradiction
    assert (found.group.name, found.key, found.domains) == ("root", "rack", domains)


def test_groups_that_cannot_be_admitted_contradict_nothing() -> None:
    """They are not placed, so where they run does not matter."""
    root = {"children": {"pg1": {"gang": 3, "key": "rack"}, "pg2": None}}
    assert required(case_of(root, ["1@pg1 on n1", "1@pg1 on n2", "1@pg2"])).scopes


def test_a_preferred_domain_is_one_that_could_hold_the_minimum() -> None:
    """The order is that of required ones; without a preference there are none."""
    assert preferred(case_of({"gang": 3, "preferred": "rack"}, ["3x1@root"])) == ["b", "c"]
    assert preferred(case_of({"gang": 3}, ["3x1@root"])) == []


def test_a_running_member_is_a_preference_for_its_domain() -> None:
    """Late pods prefer it; members in several domains leave no preference."""
    assert preferred(case_of({"gang": 1, "preferred": "rack"}, ["1@root on n1", "1@root"])) == ["a"]
    assert preferred(case_of({"gang": 1, "preferred": "rack"}, ["1@root on n1", "1@root on n2", "1@root"])) == []
    assert preferred(case_of({"gang": 1, "preferred": "rack"}, ["1@root on n4", "1@root"])) == []


def test_preferred_domains_lie_inside_required_ones() -> None:
    """A rack is preferred inside each block that is required, the better block first."""
    nodes = ["n1 2 block=x rack=a", "n2 2 block=y rack=a", "n3 2 block=y rack=b"]
    found = case_of({"gang": 2, "key": "block", "preferred": "rack"}, ["2x1@root"], nodes)
    own = domain_choice(found)
    outer = own.required(0, found.snapshot.topology.whole()).scopes
    chains = [[domain.value for domain in scope.chain] for scope in own.preferred(0, outer)]
    assert chains == [["x", "a"], ["y", "a"], ["y", "b"]]


def test_extra_pods_may_use_the_whole_required_domain() -> None:
    """The widest scope is the required domain in which the group was placed, or the scope of its parent."""
    found = case_of({"gang": 1, "key": "rack"}, ["1@root"])
    whole = found.snapshot.topology.whole()
    (first, *_) = required(found).scopes
    nowhere = Scope(chain=(), rows=whole.rows[:0])
    assert first is domain_choice(found).widest(0, first, whole)
    assert nowhere is domain_choice(found).widest(0, nowhere, whole)
    assert whole is domain_choice(case_of({"gang": 1}, ["1@root"])).widest(0, first, whole)


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
def test_the_bounds_prove_impossibility(root: Form, pods: list[str | Form], possible: bool) -> None:  # noqa: FBT001
    """Each child is taken alone, with the labels that it requires; a met group needs nothing."""
    found = case_of(root, pods)
    assert possible is domain_choice(found).possible(0, found.snapshot.topology.whole())
