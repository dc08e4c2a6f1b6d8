"""Structs as structural schemas.

The walk follows ``msgspec.inspect``, so the schema has exactly the fields of the structs, and a field without a
description is an error. A type without a rule below is an error too: a field without a type would accept anything.
"""

from dataclasses import dataclass, replace
from functools import singledispatch

from msgspec import UNSET, Struct, inspect

from cpg_api.schema import Mark, Nesting, Rule
from crds import rules
from crds.rules import Schema

_NO_MARK = Mark()
_LIMITS = (
    ("pattern", "pattern"),
    ("min_length", "minLength"),
    ("max_length", "maxLength"),
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("min_items", "minItems"),
    ("max_items", "maxItems"),
)
"""Marks that are copied into the schema, with their names there."""


class UnknownTypeError(TypeError):
    """A type of the model that has no schema."""


@dataclass(frozen=True)
class _Walk:
    """A position in the walk: the enclosing structs, outermost first."""

    above: tuple[type[Struct], ...] = ()

    def descends_into(self, struct: type[Struct]) -> "_Walk":
        return replace(self, above=(*self.above, struct))

    def ends_before(self, kind: inspect.Type) -> Nesting | None:
        """Return the limit that forbids another level of this type here, or None."""
        item = kind.item_type if isinstance(kind, inspect.VarTupleType) else kind
        if not isinstance(item, inspect.StructType):
            return None
        nesting: Nesting | None = getattr(item.cls, "NESTING", None)
        return nesting if nesting and self.above.count(item.cls) >= nesting.levels else None


def schema_of(struct: type[Struct]) -> Schema:
    """Return the schema of an object of the API with its ``metadata``."""
    schema = _of_type(inspect.type_info(struct), _Walk())
    properties = {
        "apiVersion": {"type": "string", "description": "The group and version of this representation."},
        "kind": {"type": "string", "description": "The kind of this object."},
    }
    schema["properties"] = properties | schema["properties"]
    return schema


@singledispatch
def _of_type(kind: inspect.Type, _walk: _Walk) -> Schema:
    raise UnknownTypeError(f"no schema for {kind!r}")


@_of_type.register
def _(_kind: inspect.StrType, _walk: _Walk) -> Schema:
    return {"type": "string"}


@_of_type.register
def _(_kind: inspect.IntType, _walk: _Walk) -> Schema:
    return {"type": "integer"}


@_of_type.register
def _(kind: inspect.VarTupleType, walk: _Walk) -> Schema:
    return {"type": "array", "items": _of_type(kind.item_type, walk)}


@_of_type.register
def _(kind: inspect.StructType, walk: _Walk) -> Schema:
    walk = walk.descends_into(kind.cls)
    demands: list[Rule] = list(getattr(kind.cls, "RULES", ()))
    properties, required = {}, []
    for field in kind.fields:
        schema, mark = _of_field(field, walk)
        properties[field.encode_name] = schema
        if nesting := walk.ends_before(_bare(field.type)):
            demands = [rule for rule in demands if rule.descends_into != field.encode_name]
            schema.update(_nothing(schema, nesting))
            continue
        is_required = field.required or mark.required
        if is_required:
            required.append(field.encode_name)
        demands += rules.of_field(field.encode_name, mark, required=is_required)
    made: Schema = {"type": "object"}
    if required:
        made["required"] = required
    if properties:
        made["properties"] = properties
    return rules.guarded(made, demands)


def _of_field(field: inspect.Field, walk: _Walk) -> tuple[Schema, Mark]:
    """Return a field's schema and its mark; the API server accepts no schema of ``metadata``."""
    if field.encode_name == "metadata":
        return {"type": "object"}, _NO_MARK
    notes = field.type
    if not isinstance(notes, inspect.Metadata) or not (said := notes.extra_json_schema):
        raise UnknownTypeError(f"{walk.above[-1].__name__}.{field.name} has no description")
    mark: Mark = (notes.extra or {}).get("mark", _NO_MARK)
    bare = _bare(notes)
    inner: Schema = {"type": "array"} if walk.ends_before(bare) else _of_type(bare, walk)
    made = {"description": said["description"], "type": inner.pop("type"), **_stated(mark), **inner}
    return rules.guarded(made, mark.rules), mark


def _nothing(schema: Schema, nesting: Nesting) -> Schema:
    """Return the schema of a nested list on a level where it must be empty.

    Items are preserved, so that the rule can refuse them with its message. Otherwise they would be unknown fields:
    dropped silently, or refused as misspelt.
    """
    for key in ("maxItems", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"):
        schema.pop(key, None)
    made: Schema = {
        "description": f"Must be empty here: {nesting.message}.",
        "x-kubernetes-list-type": "atomic",
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    return rules.guarded(made, [Rule(expression="self.size() == 0", message=nesting.message)])


def _bare(kind: inspect.Type) -> inspect.Type:
    """Return a field's type without annotations and None."""
    if isinstance(kind, inspect.Metadata):
        return _bare(kind.type)
    if isinstance(kind, inspect.UnionType):
        (one,) = (member for member in kind.types if not isinstance(member, inspect.NoneType))
        return _bare(one)
    return kind


def _stated(mark: Mark) -> Schema:
    """Return the keywords of OpenAPI for a mark."""
    stated: Schema = {name: value for ours, name in _LIMITS if (value := getattr(mark, ours)) not in (None, "")}
    if mark.format:
        stated["format"] = mark.format
    if mark.enum:
        stated["enum"] = list(mark.enum)
    if mark.default is not UNSET:
        stated["default"] = mark.default
    if mark.map_keys:
        stated["x-kubernetes-list-type"] = "map"
        stated["x-kubernetes-list-map-keys"] = list(mark.map_keys)
    if mark.atomic:
        stated["x-kubernetes-list-type"] = "atomic"
    return stated
