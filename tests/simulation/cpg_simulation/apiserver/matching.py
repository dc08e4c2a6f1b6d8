"""Label and field selectors of lists and watches."""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from cpg_simulation.apiserver.refusals import bad_request
from cpg_simulation.apiserver.values import Object

Matches: TypeAlias = Callable[[Object], bool]
_SET = re.compile(r"^(\S+)\s+(in|notin)\s*\(([^)]*)\)$")
_EQUAL = re.compile(r"^([^=!\s]+)\s*(==|=|!=)\s*(\S*)$")


def match_all(_: Object) -> bool:
    """Match every object."""
    return True


def matcher(query: Mapping[str, str]) -> Matches:
    """Return whether an object matches the selectors of a query."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    if not labels and not fields:
        return match_all
    tests = [_label_test(one.strip()) for one in re.split(r",(?![^(]*\))", labels) if one]
    tests += [_field_test(one.strip()) for one in fields.split(",") if one]
    return lambda found: all(test(found) for test in tests)


def _label_test(requirement: str) -> Matches:
    if found := _SET.match(requirement):
        name, operator, values = found[1], found[2], {one.strip() for one in found[3].split(",")}
        return _test(lambda value: value in values, name, is_negated=operator == "notin")
    if found := _EQUAL.match(requirement):
        name, operator, wanted = found[1], found[2], found[3]
        return _test(lambda value: value == wanted, name, is_negated=operator == "!=")
    name = requirement.removeprefix("!").strip()
    if not name or " " in name:
        raise bad_request(f'unable to parse requirement: "{requirement}"')
    return _test(lambda value: value is not None, name, is_negated=requirement.startswith("!"))


def _test(accepts: Callable[[str | None], bool], name: str, *, is_negated: bool) -> Matches:
    return lambda found: accepts((found["metadata"].get("labels") or {}).get(name)) != is_negated


def _field_test(requirement: str) -> Matches:
    found = _EQUAL.match(requirement)
    if not found:
        raise bad_request(f"invalid field selector: {requirement}")
    path, operator, wanted = found[1].split("."), found[2], found[3]
    return lambda one: (_value_at(one, path) == wanted) == (operator != "!=")


def _value_at(found: Object, path: list[str]) -> str:
    value: Any = found
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return str(value or "")
