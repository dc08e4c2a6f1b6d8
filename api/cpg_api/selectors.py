# ruff: noqa: A005 - it is inside a package, so the standard library's module stays reachable
"""Selectors over labels and nodes, compiled once and evaluated many thousand times.

The semantics are those of apimachinery's labels and of kube-scheduler's node affinity. NotIn matches where the key is
missing. Gt and Lt compare int64 and match nothing else. Keys and values that cannot be labels make an expression
invalid. An invalid expression matches nothing and is reported with its path. The terms of a node selector are
alternatives, so its valid terms still count.

Compiled selectors are values: two with the same meaning, in whatever order, are equal and have one hash.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self, TypeVar

from msgspec import Struct

from cpg_api.core.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_api.problems import Problem, child_path, quote
from cpg_api.quantity import parse_int64
from cpg_api.schema import LABEL_KEY, MAX_SUBDOMAIN

LABEL_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
NODE_OPERATORS = (*LABEL_OPERATORS, "Gt", "Lt")
FIELD_OPERATORS = ("In", "NotIn")
NAME_FIELD = "metadata.name"

_KEY = re.compile(LABEL_KEY)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

Labels = Mapping[str, str]
Requirement = LabelSelectorRequirement | NodeSelectorRequirement
AnyRequirement = TypeVar("AnyRequirement", LabelSelectorRequirement, NodeSelectorRequirement)


class Expression(Struct, frozen=True, gc=False):
    """One condition on one label; ``bound`` is the number of Gt and Lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()
    bound: int = 0

    def matches(self, labels: Labels) -> bool:
        """Return whether the labels satisfy the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        number = None if value is None else parse_int64(value)
        if number is None:
            return False
        return number > self.bound if self.operator == "Gt" else number < self.bound


class LabelMatcher(Struct, frozen=True, gc=False):
    """A compiled label selector."""

    equal: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Expression, ...] = ()
    matches_nothing: bool = False
    problems: tuple[Problem, ...] = ()

    @classmethod
    def compile(cls, selector: LabelSelector | None, path: str = "") -> Self:
        """Compile a selector: None selects nothing, an empty selector everything."""
        if selector is None:
            return cls(matches_nothing=True)
        expressions, found = _compile_all(
            selector.match_expressions, child_path(path, "matchExpressions"), _label_problems
        )
        problems = (*_map_problems(selector.match_labels or {}, child_path(path, "matchLabels")), *found)
        if problems:
            return cls(matches_nothing=True, problems=problems)
        return cls(equal=tuple(sorted((selector.match_labels or {}).items())), expressions=expressions)

    @classmethod
    def exact(cls, labels: Labels | None) -> Self:
        """Compile a plain set of labels, such as a pod's nodeSelector. Kubernetes does not validate it."""
        return cls(equal=tuple(sorted((labels or {}).items())))

    def matches(self, labels: Labels) -> bool:
        """Return whether the labels are selected."""
        if self.matches_nothing:
            return False
        for key, value in self.equal:
            if labels.get(key) != value:
                return False
        return _all_hold(self.expressions, labels)


class NodeTermMatcher(Struct, frozen=True, gc=False):
    """A compiled term of a node selector or of a preference."""

    expressions: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()
    matches_nothing: bool = False
    problems: tuple[Problem, ...] = ()

    @classmethod
    def compile(cls, term: NodeSelectorTerm, path: str = "") -> Self:
        """Compile a term; an empty one matches no node."""
        if not term.match_expressions and not term.match_fields:
            return cls(matches_nothing=True)
        expressions, found = _compile_all(term.match_expressions, child_path(path, "matchExpressions"), _node_problems)
        fields, found_in_fields = _compile_all(term.match_fields, child_path(path, "matchFields"), _field_problems)
        if found or found_in_fields:
            return cls(matches_nothing=True, problems=(*found, *found_in_fields))
        return cls(expressions=expressions, fields=fields)

    def matches(self, labels: Labels, name: str) -> bool:
        """Return whether the term matches a node. A node without a name passes all expressions on fields."""
        if self.matches_nothing or not _all_hold(self.expressions, labels):
            return False
        return not (name and self.fields) or _all_hold(self.fields, {NAME_FIELD: name})


class NodeMatcher(Struct, frozen=True, gc=False):
    """A compiled node selector: its valid terms, each of which is sufficient, and the problems of the others."""

    terms: tuple[NodeTermMatcher, ...] = ()
    problems: tuple[Problem, ...] = ()

    @classmethod
    def compile(cls, selector: NodeSelector, path: str = "") -> Self:
        """Compile a selector; one without terms matches no node."""
        terms = [
            NodeTermMatcher.compile(term, f"{child_path(path, 'nodeSelectorTerms')}[{index}]")
            for index, term in enumerate(selector.node_selector_terms or ())
        ]
        return cls(
            terms=tuple(term for term in terms if not term.matches_nothing),
            problems=tuple(problem for term in terms for problem in term.problems),
        )

    def matches(self, labels: Labels, name: str) -> bool:
        """Return whether the node is selected."""
        for term in self.terms:  # noqa: SIM110 - a generator would cost more than the question
            if term.matches(labels, name):
                return True
        return False


def _all_hold(expressions: tuple[Expression, ...], labels: Labels) -> bool:
    for expression in expressions:  # noqa: SIM110 - a generator would cost more than the question
        if not expression.matches(labels):
            return False
    return True


def _compile_all(
    requirements: Sequence[AnyRequirement] | None,
    path: str,
    check: Callable[[AnyRequirement, str], Iterator[Problem]],
) -> tuple[tuple[Expression, ...], tuple[Problem, ...]]:
    """Return the expressions in a canonical order, and all problems in the order of the selector."""
    expressions: set[Expression] = set()
    problems: list[Problem] = []
    for index, requirement in enumerate(requirements or ()):
        found = tuple(check(requirement, f"{path}[{index}]"))
        problems += found
        if not found:
            expressions.add(_compile_expression(requirement))
    ordered = sorted(expressions, key=lambda one: (one.key, one.operator, sorted(one.values), one.bound))
    return tuple(ordered), tuple(problems)


def _compile_expression(requirement: Requirement) -> Expression:
    """Compile a valid expression. Gt and Lt have exactly one value, an integer."""
    values = requirement.values or ()
    if requirement.operator in {"Gt", "Lt"}:
        return Expression(requirement.key, requirement.operator, bound=int(values[0]))
    return Expression(requirement.key, requirement.operator, frozenset(values))


def _label_problems(requirement: LabelSelectorRequirement, path: str) -> Iterator[Problem]:
    return _requirement_problems(requirement, LABEL_OPERATORS, path)


def _node_problems(requirement: NodeSelectorRequirement, path: str) -> Iterator[Problem]:
    return _requirement_problems(requirement, NODE_OPERATORS, path)


def _requirement_problems(requirement: Requirement, operators: Sequence[str], path: str) -> Iterator[Problem]:
    """Yield the problems of an expression over labels."""
    operator, values = requirement.operator, requirement.values or ()
    yield from _key_problems(requirement.key, f"{path}.key")
    if operator not in operators:
        yield Problem(f"{path}.operator", f"{quote(operator)} is not one of {', '.join(operators)}.")
    elif operator in {"In", "NotIn"} and not values:
        yield Problem(f"{path}.values", f"{operator} needs at least one value.")
    elif operator in {"Exists", "DoesNotExist"} and values:
        yield Problem(f"{path}.values", f"{operator} takes no values.")
    elif operator in {"Gt", "Lt"}:
        if len(values) != 1:
            yield Problem(f"{path}.values", f"{operator} needs exactly one value.")
        for index, value in enumerate(values):
            if parse_int64(value) is None:
                yield Problem(f"{path}.values[{index}]", f"{quote(value)} is not an integer, as {operator} needs.")
    for index, value in enumerate(values):
        yield from _value_problems(value, f"{path}.values[{index}]")


def _field_problems(requirement: NodeSelectorRequirement, path: str) -> Iterator[Problem]:
    """Yield the problems of an expression over fields. Their values need not be label values."""
    if requirement.key != NAME_FIELD:
        yield Problem(f"{path}.key", f"{quote(requirement.key)} is not a field to select by, only {NAME_FIELD} is.")
    if requirement.operator not in FIELD_OPERATORS:
        found = quote(requirement.operator)
        yield Problem(f"{path}.operator", f"{found} is not one of {', '.join(FIELD_OPERATORS)}.")
    elif len(requirement.values or ()) != 1:
        yield Problem(f"{path}.values", f"{requirement.operator} needs exactly one value here.")


def _map_problems(labels: Labels, path: str) -> Iterator[Problem]:
    """Yield the problems of a set of labels."""
    for key, value in labels.items():
        yield from _key_problems(key, f"{path}[{key}]")
        yield from _value_problems(value, f"{path}[{key}]")


def _key_problems(key: str, path: str) -> Iterator[Problem]:
    prefix, _, _ = key.rpartition("/")
    if len(prefix) > MAX_SUBDOMAIN or not _KEY.fullmatch(key):
        yield Problem(path, f"{quote(key)} cannot be the key of a label.")


def _value_problems(value: str, path: str) -> Iterator[Problem]:
    if not _VALUE.fullmatch(value):
        yield Problem(path, f"{quote(value)} cannot be the value of a label.")
