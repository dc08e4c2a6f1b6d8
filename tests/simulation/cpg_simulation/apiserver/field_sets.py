"""Sets of fields, as managed fields name them: ``f:status``, ``f:conditions``, ``k:{"type":"Healthy"}``.

The rules are those of structured-merge-diff: a list with keys and a map are compared item by item, and everything else
is one field.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

from cpg_simulation.apiserver.schemas import Schema
from cpg_simulation.apiserver.values import Object

Path: TypeAlias = tuple[str, ...]
FieldSet: TypeAlias = frozenset[Path]

_MISSING = object()
"""Stands for a field that is absent; null is a value."""
UNMANAGED = {
    ("f:apiVersion",),
    ("f:kind",),
    ("f:metadata",),
    *(
        ("f:metadata", f"f:{name}")
        for name in (
            "name",
            "namespace",
            "creationTimestamp",
            "uid",
            "generation",
            "managedFields",
            "resourceVersion",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        )
    ),
}
"""Fields without a manager."""


class Differences(NamedTuple):
    """The fields in which two objects differ."""

    changed: FieldSet
    """Fields that the second object has alone or with another value."""
    removed: FieldSet


def children(value: Any, schema: Schema) -> dict[str, tuple[Any, Schema]] | None:  # noqa: ANN401  # JSON values
    """Return the parts of a value that are fields of their own, or None if it is one field."""
    if isinstance(value, dict) and not schema.is_atomic:
        return {f"f:{name}": (part, schema.field(name)) for name, part in value.items()}
    if isinstance(value, list) and (schema.keys or schema.is_set):
        return {_item_name(item, schema): (item, schema.item()) for item in value}
    return None


def _item_name(item: Any, schema: Schema) -> str:  # noqa: ANN401  # JSON values
    if schema.is_set:
        return f"v:{_encode(item)}"
    return _key_name(schema.keys, tuple(item.get(key) for key in schema.keys))


@cache
def _key_name(keys: tuple[str, ...], values: tuple[Any, ...]) -> str:
    found = {key: value for key, value in sorted(zip(keys, values, strict=True)) if value is not None}
    return f"k:{_encode(found)}"


def fields_of(value: Any, schema: Schema, path: Path = ()) -> Iterator[Path]:  # noqa: ANN401  # JSON values
    """Yield the fields of an applied configuration."""
    parts = children(value, schema)
    if parts is None:
        yield path
        return
    for name, (part, below) in parts.items():
        here = (*path, name)
        yield from fields_of(part, below, here)
        if name[0] == "k" or part == {}:
            yield here


def differences(old: Any, new: Any, schema: Schema) -> Differences:  # noqa: ANN401  # JSON values
    """Return the fields in which two values differ."""
    changed: set[Path] = set()
    removed: set[Path] = set()
    _compare(old, new, schema, (), changed, removed)
    return Differences(frozenset(changed - UNMANAGED), frozenset(removed))


def _compare(
    old: Any,  # noqa: ANN401  # JSON values
    new: Any,  # noqa: ANN401  # JSON values
    schema: Schema,
    path: Path,
    changed: set[Path],
    removed: set[Path],
) -> None:
    if old is new:
        return
    before, after = children(old, schema), children(new, schema)
    if (before is None and old is not _MISSING) or (after is None and new is not _MISSING):
        if old != new:
            (removed if new is _MISSING else changed).add(path)
        return
    if new is _MISSING:
        removed.add(path)
    elif old is _MISSING:
        changed.add(path)
    before, after = before or {}, after or {}
    for name in (*before, *(name for name in after if name not in before)):
        below = (after.get(name) or before[name])[1]
        _compare(
            before[name][0] if name in before else _MISSING,
            after[name][0] if name in after else _MISSING,
            below,
            (*path, name),
            changed,
            removed,
        )


def with_parents(fields: Iterable[Path]) -> FieldSet:
    """Return fields with the named fields around them; an item of a list belongs to a set only by itself."""
    found = set(fields)
    for path in [*found]:
        for length in range(len(path) - 1, 0, -1):
            if path[length - 1][0] == "f":
                found.add(path[:length])
    return frozenset(found)


def without(value: Any, schema: Schema, fields: FieldSet) -> Any:  # noqa: ANN401  # JSON values
    """Return a value without these fields and all that is below them."""
    prefixes = {path[:length] for path in fields for length in range(1, len(path))}
    return _without(value, schema, (), fields, prefixes)


def _without(value: Any, schema: Schema, path: Path, fields: FieldSet, prefixes: set[Path]) -> Any:  # noqa: ANN401
    parts = children(value, schema)
    if parts is None:
        return value
    kept = {
        name: _without(part, below, (*path, name), fields, prefixes) if (*path, name) in prefixes else part
        for name, (part, below) in parts.items()
        if (*path, name) not in fields
    }
    if isinstance(value, dict):
        return {name[2:]: part for name, part in kept.items()}
    return [*kept.values()]


def as_json(fields: FieldSet) -> Object:
    """Return fields as ``fieldsV1`` of an entry of managed fields."""
    tree: Object = {}
    for path in sorted(fields):
        node = tree
        for name in path:
            node = node.setdefault(name, {})
        node["."] = {}
    return _without_lone_dots(tree)


def _without_lone_dots(node: Object) -> Object:
    return {} if node.keys() == {"."} else {name: _without_lone_dots(below) for name, below in node.items()}


def as_text(path: Path) -> str:
    """Return a field as a conflict names it."""
    parts = []
    for name in path:
        kind, value = name.split(":", 1)
        if kind == "f":
            parts.append(f".{value}")
        elif kind == "k":
            keys = msgspec.json.decode(value, type=dict[str, Any])
            parts.append(f"[{','.join(f'{key}={_encode(part)}' for key, part in keys.items())}]")
        else:
            parts.append(f"[={value}]")
    return "".join(parts)


def _encode(value: Any) -> str:  # noqa: ANN401  # JSON values
    return msgspec.json.encode(value).decode()
