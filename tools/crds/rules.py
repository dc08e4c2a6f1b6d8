"""Marks as CEL.

Rules about a field are placed on the struct that holds it: a transition rule on a field is skipped if the field is
absent before or after, so it could never refuse that the field is set or cleared.
"""

from collections.abc import Iterable
from typing import Any

from cpg_api.schema import FIELD_IS_IMMUTABLE, Mark, Rule

Schema = dict[str, Any]

_DEFAULT_REASON = "FieldValueInvalid"


def of_field(name: str, mark: Mark, *, required: bool) -> list[Rule]:
    """Return the rules about a field, for the enclosing struct."""
    rules = []
    if mark.immutable:
        rules.append(_immutable(name, required=required))
    if mark.set_once:
        rules.append(_set_once(name))
    if mark.from_template:
        rules.append(_from_template(name))
    if mark.fixed_items:
        rules += _fixed_items(name, mark.map_keys[0])
    return rules


def guarded(schema: Schema, rules: Iterable[Rule]) -> Schema:
    """Return a schema with further rules."""
    key = "x-kubernetes-validations"
    all_rules = [*schema.get(key, ()), *map(_as_schema, rules)]
    return schema | {key: all_rules} if all_rules else schema


def _as_schema(rule: Rule) -> Schema:
    schema = {"rule": rule.expression, "message": rule.message}
    if rule.message_expression:
        schema["messageExpression"] = rule.message_expression
    if rule.path:
        schema["fieldPath"] = rule.path
    if rule.reason != _DEFAULT_REASON:
        schema["reason"] = rule.reason
    return schema


def _immutable(name: str, *, required: bool) -> Rule:
    unchanged = f"self.{name} == oldSelf.{name}"
    if not required:
        unchanged = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {unchanged})"
    return Rule(expression=unchanged, message=FIELD_IS_IMMUTABLE, path=f".{name}")


def _set_once(name: str) -> Rule:
    return Rule(
        expression=f"!has(oldSelf.{name}) || has(self.{name}) && self.{name} == oldSelf.{name}",
        message=f"{FIELD_IS_IMMUTABLE} once set",
        path=f".{name}",
    )


def _from_template(name: str) -> Rule:
    unchanged = f"!has(self.{name}) || self.{name} == oldSelf.{name}"
    filled = "has(self.schedulingPolicy) && !has(oldSelf.schedulingPolicy)"
    return Rule(
        expression=f"has(self.{name}) == has(oldSelf.{name}) ? {unchanged} : has(self.{name}) && {filled}",
        message=FIELD_IS_IMMUTABLE,
        path=f".{name}",
    )


def _fixed_items(name: str, key: str) -> list[Rule]:
    def subset(one: str, other: str) -> str:
        same = f"{other}.{name}.exists(o, o.{key} == i.{key})"
        return f"!has({one}.{name}) || {one}.{name}.all(i, has({other}.{name}) && {same})"

    return [
        Rule(expression=expression, message=f"item may not be {done}", reason="FieldValueForbidden", path=f".{name}")
        for done, expression in (
            ("added", subset("self", "oldSelf")),
            ("removed", subset("oldSelf", "self")),
        )
    ]
