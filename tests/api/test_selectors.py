"""Selectors: the tables of Kubernetes, a naive evaluator, and every problem with its path."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpg_api.core.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_api.problems import Problem
from cpg_api.selectors import LabelMatcher, NodeMatcher, NodeTermMatcher

GOOD_KEYS = ("a", "b", "x.io/c")
BAD_KEYS = ("", "-a", "bad key", "X.io/c", "/c", "x.io/", "a/b/c", "a" * 64, "a" * 254 + "/b")
GOOD_VALUES = ("", "1", "2", "x", "007", "9223372036854775807")
BAD_VALUES = ("-1", "bad value", "x" * 64, "ü", "x.", "x\n")
ODD_NUMBERS = ("-3", "9223372036854775808", "1_0", "+2")

keys = st.sampled_from(GOOD_KEYS) | st.sampled_from(GOOD_KEYS * 3 + BAD_KEYS)
values = st.sampled_from(GOOD_VALUES) | st.sampled_from(GOOD_VALUES * 3 + BAD_VALUES)
labels_of_something = st.dictionaries(st.sampled_from(GOOD_KEYS), st.sampled_from(GOOD_VALUES + ODD_NUMBERS))
operators = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "in", ""])

Requirement = LabelSelectorRequirement | NodeSelectorRequirement


def naive_number(text: str) -> int | None:
    """Read an int64 with Python's int, and refuse what Go refuses."""
    if not set(text) <= set("+-0123456789"):
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if number.bit_length() < 64 else None


def naive_is_valid(requirement: Requirement, allowed: Iterable[str]) -> bool:
    """Return whether Kubernetes accepts an expression over the known keys and values."""
    listed = requirement.values or ()
    if requirement.key not in GOOD_KEYS or requirement.operator not in allowed or set(listed) & set(BAD_VALUES):
        return False
    if requirement.operator in {"Gt", "Lt"}:
        return [naive_number(value) is not None for value in listed] == [True]
    return bool(listed) == requirement.operator.endswith("In")


def naive_expression(requirement: Requirement, labels: dict[str, str]) -> bool:
    """Evaluate one expression as documented."""
    here, listed = requirement.key in labels, requirement.values or ()
    numbers = [naive_number(text) for text in (labels.get(requirement.key, ""), *listed)]
    return {
        "In": here and labels.get(requirement.key) in listed,
        "NotIn": not here or labels[requirement.key] not in listed,
        "Exists": here,
        "DoesNotExist": not here,
        "Gt": here and numbers[0] is not None and numbers[0] > (numbers[-1] or 0),
        "Lt": here and numbers[0] is not None and numbers[0] < (numbers[-1] or 0),
    }[requirement.operator]


def naive_label_selector(selector: LabelSelector | None, labels: dict[str, str]) -> bool:
    """Evaluate a label selector as documented."""
    if selector is None:
        return False
    for key, value in (selector.match_labels or {}).items():
        if key not in GOOD_KEYS or value in BAD_VALUES or labels.get(key) != value:
            return False
    expressions = selector.match_expressions or ()
    valid = all(naive_is_valid(one, ("In", "NotIn", "Exists", "DoesNotExist")) for one in expressions)
    return valid and all(naive_expression(one, labels) for one in expressions)


def naive_node_term(term: NodeSelectorTerm, labels: dict[str, str], name: str) -> bool:
    """Evaluate a node selector term as documented."""
    expressions, fields = term.match_expressions or (), term.match_fields or ()
    if not expressions and not fields:
        return False
    if not all(naive_is_valid(one, ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")) for one in expressions):
        return False
    if any(
        one.key != "metadata.name" or one.operator not in {"In", "NotIn"} or len(one.values or ()) != 1
        for one in fields
    ):
        return False
    named = all((name in (one.values or ())) == (one.operator == "In") for one in fields)
    return named and all(naive_expression(one, labels) for one in expressions)


def draw_expressions(kind: type[LabelSelectorRequirement] | type[NodeSelectorRequirement]) -> st.SearchStrategy[object]:
    """Draw expressions, most of them valid."""
    sound = st.one_of(
        st.builds(
            kind,
            st.sampled_from(GOOD_KEYS),
            st.sampled_from(["In", "NotIn"]),
            st.lists(st.sampled_from(GOOD_VALUES), min_size=1, max_size=3).map(tuple),
        ),
        st.builds(kind, st.sampled_from(GOOD_KEYS), st.sampled_from(["Exists", "DoesNotExist"])),
    )
    odd = st.builds(kind, keys, operators, st.none() | st.lists(values, max_size=2).map(tuple))
    return st.one_of(sound, sound, sound, odd)


comparisons = st.builds(
    NodeSelectorRequirement,
    st.sampled_from(GOOD_KEYS),
    st.sampled_from(["Gt", "Lt"]),
    st.sampled_from(["0", "1", "2", "007", "x"]).map(lambda value: (value,)),
)
names = st.builds(
    NodeSelectorRequirement,
    st.sampled_from(["metadata.name"] * 5 + ["metadata.namespace"]),
    st.sampled_from(["In", "In", "NotIn", "NotIn", "Exists"]),
    st.lists(st.sampled_from(["n1", "n2", "Odd_Name"]), min_size=1, max_size=2).map(tuple),
)
label_selectors = st.none() | st.builds(
    LabelSelector,
    st.none() | st.dictionaries(keys, values, max_size=2),
    st.none() | st.lists(draw_expressions(LabelSelectorRequirement), max_size=3).map(tuple),
)
node_terms = st.builds(
    NodeSelectorTerm,
    st.none() | st.lists(draw_expressions(NodeSelectorRequirement) | comparisons, max_size=3).map(tuple),
    st.none() | st.lists(names, max_size=2).map(tuple),
)


@settings(max_examples=250)
@given(label_selectors, labels_of_something)
def test_label_selectors_agree_with_the_naive_evaluator(selector: LabelSelector | None, labels: dict[str, str]) -> None:
    """A selector with a problem selects nothing."""
    matcher = LabelMatcher.compile(selector)
    assert matcher.matches(labels) is naive_label_selector(selector, labels)
    assert not (matcher.problems and matcher.matches(labels))


@settings(max_examples=250)
@given(st.lists(node_terms, max_size=3), labels_of_something, st.sampled_from(["n1", "n2", "n3"]))
def test_node_selectors_agree_with_the_naive_evaluator(
    terms: list[NodeSelectorTerm], labels: dict[str, str], name: str
) -> None:
    """One matching valid term is sufficient, whatever is wrong with the others."""
    matcher = NodeMatcher.compile(NodeSelector(tuple(terms)))
    assert matcher.matches(labels, name) is any(naive_node_term(term, labels, name) for term in terms)


@given(label_selectors.filter(bool), st.randoms(use_true_random=False))
def test_equivalent_selectors_are_equal(selector: LabelSelector, random: st.DataObject) -> None:
    """Order and repetition make no difference: equivalent selectors have one hash."""
    expressions = [*(selector.match_expressions or ())] * 2
    random.shuffle(expressions)  # type: ignore[attr-defined]
    labels = dict(reversed((selector.match_labels or {}).items()))
    one, other = LabelMatcher.compile(selector), LabelMatcher.compile(LabelSelector(labels, tuple(expressions)))
    if not one.problems:
        assert one == other
        assert hash(one) == hash(other)


def test_absent_and_empty_selectors() -> None:
    """An absent label selector selects nothing, an empty one everything; of node selectors both select nothing."""
    assert not LabelMatcher.compile(None).matches({"a": "1"})
    for empty in (LabelSelector(), LabelSelector({}, ())):
        assert LabelMatcher.compile(empty).matches({})
    for nothing in (NodeSelector(), NodeSelector(()), NodeSelector((NodeSelectorTerm(), NodeSelectorTerm((), ())))):
        matcher = NodeMatcher.compile(nothing)
        assert not matcher.matches({"a": "1"}, "n1")
        assert matcher.problems == ()


@pytest.mark.parametrize(
    ("operator", "listed", "label", "holds"),
    [
        ("In", ("1", "2"), "2", True),
        ("In", ("1",), None, False),
        ("In", ("",), "", True),
        ("NotIn", ("1",), "1", False),
        ("NotIn", ("1",), "2", True),
        ("NotIn", ("1",), None, True),
        ("Exists", None, "", True),
        ("Exists", (), None, False),
        ("DoesNotExist", None, None, True),
        ("DoesNotExist", None, "", False),
        ("Gt", ("1",), "2", True),
        ("Gt", ("1",), "1", False),
        ("Gt", ("1",), None, False),
        ("Gt", ("1",), "x", False),
        ("Gt", ("1",), "9223372036854775808", False),
        ("Gt", ("007",), "8", True),
        ("Lt", ("1",), "-5", True),
        ("Lt", ("1",), "1", False),
        ("Lt", ("9223372036854775807",), "9223372036854775806", True),
        ("Lt", ("9",), "1_0", False),
    ],
)
def test_operators_match_as_in_kubernetes(
    *, operator: str, listed: tuple[str, ...] | None, label: str | None, holds: bool
) -> None:
    """Each operator matches the labels that it matches in kube-scheduler."""
    term = NodeSelectorTerm((NodeSelectorRequirement("a", operator, listed),))
    matcher = NodeTermMatcher.compile(term)
    assert matcher.problems == ()
    assert matcher.matches({} if label is None else {"a": label}, "n1") is holds


def test_match_fields_select_by_name() -> None:
    """A node without a name passes all expressions on fields."""
    wanted = NodeSelectorRequirement("metadata.name", "In", ("host_1",))
    unwanted = NodeSelectorRequirement("metadata.name", "NotIn", ("host_1",))
    labelled = NodeSelectorRequirement("a", "In", ("1",))
    by_name = NodeTermMatcher.compile(NodeSelectorTerm(match_fields=(wanted,)))
    assert [by_name.matches({}, name) for name in ("host_1", "host_2", "")] == [True, False, True]
    by_other_name = NodeTermMatcher.compile(NodeSelectorTerm(match_fields=(unwanted,)))
    assert [by_other_name.matches({}, name) for name in ("host_1", "host_2", "")] == [False, True, True]
    by_both = NodeTermMatcher.compile(NodeSelectorTerm((labelled,), (wanted,)))
    assert by_both.matches({"a": "1"}, "host_1")
    assert not by_both.matches({"a": "1"}, "host_2")
    assert not by_both.matches({}, "host_1")


def test_terms_are_alternatives() -> None:
    """The second term is sufficient where the first is invalid; the problems of the first are reported."""
    broken = NodeSelectorTerm((NodeSelectorRequirement("a", "Matches", ("1",)),))
    sound = NodeSelectorTerm(match_fields=(NodeSelectorRequirement("metadata.name", "In", ("n1",)),))
    matcher = NodeMatcher.compile(NodeSelector((broken, NodeSelectorTerm(), sound)), "spec.x")
    assert matcher.matches({}, "n1")
    assert not matcher.matches({"a": "1"}, "n2")
    assert matcher.problems == (
        Problem(
            "spec.x.nodeSelectorTerms[0].matchExpressions[0].operator",
            "'Matches' is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt.",
        ),
    )


def test_label_selectors_do_not_compare_numbers() -> None:
    """Gt and Lt exist in node selectors only."""
    matcher = LabelMatcher.compile(LabelSelector(None, (LabelSelectorRequirement("a", "Gt", ("1",)),)), "spec.selector")
    assert matcher.problems == (
        Problem("spec.selector.matchExpressions[0].operator", "'Gt' is not one of In, NotIn, Exists, DoesNotExist."),
    )
    assert not matcher.matches({"a": "2"})


def test_every_problem_of_a_term_is_reported() -> None:
    """All at once, in the order of the selector, each with its path."""
    term = NodeSelectorTerm(
        (
            NodeSelectorRequirement("a", "In"),
            NodeSelectorRequirement("a", "Exists", ("1",)),
            NodeSelectorRequirement("a", "Gt", ("1", "two", "-3")),
            NodeSelectorRequirement("bad key", "NotIn", ("fine", "bad value")),
        ),
        (
            NodeSelectorRequirement("metadata.uid", "In", ("1",)),
            NodeSelectorRequirement("metadata.name", "Exists"),
            NodeSelectorRequirement("metadata.name", "NotIn", ("1", "2")),
        ),
    )
    matcher = NodeTermMatcher.compile(term, "t")
    assert [str(problem) for problem in matcher.problems] == [
        "t.matchExpressions[0].values: In needs at least one value.",
        "t.matchExpressions[1].values: Exists takes no values.",
        "t.matchExpressions[2].values: Gt needs exactly one value.",
        "t.matchExpressions[2].values[1]: 'two' is not an integer, as Gt needs.",
        "t.matchExpressions[2].values[2]: '-3' cannot be the value of a label.",
        "t.matchExpressions[3].key: 'bad key' cannot be the key of a label.",
        "t.matchExpressions[3].values[1]: 'bad value' cannot be the value of a label.",
        "t.matchFields[0].key: 'metadata.uid' is not a field to select by, only metadata.name is.",
        "t.matchFields[1].operator: 'Exists' is not one of In, NotIn.",
        "t.matchFields[2].values: NotIn needs exactly one value here.",
    ]
    assert not matcher.matches({}, "n1")


@pytest.mark.parametrize("key", BAD_KEYS)
def test_invalid_label_keys_are_a_problem(key: str) -> None:
    """A selector with such a key in matchLabels selects nothing."""
    matcher = LabelMatcher.compile(LabelSelector({key: "1"}))
    assert [problem.path for problem in matcher.problems] == [f"matchLabels[{key}]"]
    assert not matcher.matches({key: "1"})


@pytest.mark.parametrize("value", BAD_VALUES)
def test_invalid_label_values_are_a_problem(value: str) -> None:
    """With such a value even NotIn matches nothing."""
    matcher = LabelMatcher.compile(LabelSelector({"a": value}, (LabelSelectorRequirement("b", "NotIn", (value,)),)))
    assert [problem.path for problem in matcher.problems] == ["matchLabels[a]", "matchExpressions[0].values[0]"]
    assert not matcher.matches({"a": value})


def test_node_selector_maps_are_not_validated() -> None:
    """A pod's nodeSelector is compared as it is; an empty one selects every node."""
    assert LabelMatcher.exact(None).matches({})
    assert LabelMatcher.exact({}).matches({"a": "1"})
    odd = LabelMatcher.exact({"bad key": "bad value", "a": "1"})
    assert odd.matches({"a": "1", "bad key": "bad value", "b": "2"})
    assert not odd.matches({"a": "1"})
    assert LabelMatcher.exact({"a": "1"}) == LabelMatcher.compile(LabelSelector({"a": "1"}))
