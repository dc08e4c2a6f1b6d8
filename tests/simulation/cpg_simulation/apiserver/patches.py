"""Merge patches, strategic merge patches and JSON patches."""

from collections.abc import Callable, Sequence
from typing import Any

from cpg_simulation.apiserver.refusals import RefusedError, bad_request
from cpg_simulation.apiserver.schemas import Schema

DIRECTIVE, DELETED_PRIMITIVES = "$patch", "$deleteFromPrimitiveList/"


def merge(old: Any, patch: Any) -> Any:  # noqa: ANN401  # JSON values
    """Return a value after a merge patch of RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge(merged.get(name), value)
    return merged


def strategic_merge(old: Any, patch: Any, schema: Schema) -> Any:  # noqa: ANN401  # JSON values
    """Return a value after a strategic merge patch."""
    if isinstance(patch, list):
        return _merge_lists(old, patch, schema)
    if not isinstance(patch, dict):
        return patch
    directive = patch.get(DIRECTIVE)
    merged = dict(old) if isinstance(old, dict) and directive != "replace" else {}
    if directive == "delete":
        return merged if old is None else {}
    for name, value in patch.items():
        if name.startswith(DELETED_PRIMITIVES):
            field = name.removeprefix(DELETED_PRIMITIVES)
            merged[field] = [one for one in merged.get(field) or () if one not in value]
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        elif not name.startswith("$"):
            merged[name] = strategic_merge(merged.get(name), value, schema.field(name))
    return merged


def _merge_lists(old: Any, patch: list[Any], schema: Schema) -> list[Any]:  # noqa: ANN401  # JSON values
    before: list[Any] = old or []
    if schema.merge is None:
        return patch
    if schema.merge == "":
        return _ordered(before, list(dict.fromkeys([*before, *patch])), patch, lambda item: item)
    if any(item.get(DIRECTIVE) == "replace" for item in patch):
        return [item for item in patch if DIRECTIVE not in item]
    key = schema.merge
    if any(key not in item for item in patch):
        raise bad_request(f"map does not contain declared merge key: {key}")
    deleted = {item[key] for item in patch if item.get(DIRECTIVE) == "delete"}
    kept = [item for item in patch if DIRECTIVE not in item]
    before = [item for item in before if item[key] not in deleted]
    found = {item[key]: item for item in before}
    for item in kept:
        found[item[key]] = strategic_merge(found.get(item[key]), item, schema.item())
    return _ordered(before, list(found.values()), kept, lambda item: item[key])


def _ordered(
    before: Sequence[Any], merged: Sequence[Any], patch: Sequence[Any], key: Callable[[Any], Any]
) -> list[Any]:
    """Return merged items in the order of Kubernetes: new ones of the patch before old ones that it does not name."""
    places = {key(item): place for place, item in enumerate(before)}
    by_key = {key(item): item for item in merged}
    patched = [name for name in dict.fromkeys(key(item) for item in patch) if name in by_key]
    left = sorted(by_key.keys() - set(patched), key=lambda name: places[name])
    ordered = []
    for name in patched:
        while left and name in places and places[left[0]] < places[name]:
            ordered.append(left.pop(0))
        ordered.append(name)
    return [by_key[name] for name in (*ordered, *left)]


def json_patch(old: Any, operations: Any) -> Any:  # noqa: ANN401  # JSON values
    """Return a value after a JSON patch of RFC 6902."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch is a list of operations")
    for operation in operations:
        try:
            old = _apply_operation(old, operation)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise RefusedError(422, "Invalid", f"the operation {operation} cannot be applied: {error}") from error
    return old


def _apply_operation(old: Any, operation: dict[str, Any]) -> Any:  # noqa: ANN401  # JSON values
    path = _steps(operation["path"])
    match operation["op"]:
        case "add" | "replace" as op:
            return _changed(old, path, operation["value"], op)
        case "remove":
            return _changed(old, path, None, "remove")
        case "test":
            if _value_at(old, path) != operation["value"]:
                raise ValueError("testing value failed")
            return old
        case "copy" | "move" as op:
            source = _steps(operation["from"])
            value = _value_at(old, source)
            rest = _changed(old, source, None, "remove") if op == "move" else old
            return _changed(rest, path, value, "add")
        case unknown:
            raise ValueError(f"unknown operation {unknown}")


def _steps(pointer: str) -> list[str]:
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def _value_at(value: Any, path: Sequence[str]) -> Any:  # noqa: ANN401  # JSON values
    for step in path:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _changed(old: Any, path: Sequence[str], value: Any, op: str) -> Any:  # noqa: ANN401  # JSON values
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(old, list):
        place = len(old) if step == "-" else int(step)
        if rest:
            return [*old[:place], _changed(old[place], rest, value, op), *old[place + 1 :]]
        inserted = [] if op == "remove" else [value]
        if place > len(old) or (op != "add" and place == len(old)):
            raise IndexError(f"no item {step}")
        return [*old[:place], *inserted, *old[place + (op != "add") :]]
    if rest:
        return {**old, step: _changed(old[step], rest, value, op)}
    if op == "remove" and step not in old:
        raise KeyError(step)
    return {name: one for name, one in old.items() if name != step} | ({} if op == "remove" else {step: value})


def combine(live: Any, config: Any, schema: Schema) -> Any:  # noqa: ANN401  # JSON values
    """Return a live value with an applied configuration on top, as a server-side apply merges them."""
    if isinstance(live, dict) and isinstance(config, dict) and not schema.is_atomic:
        names = dict.fromkeys([*live, *config])
        return {
            name: combine(live[name], config[name], schema.field(name))
            if name in live and name in config
            else (config[name] if name in config else live[name])
            for name in names
        }
    if isinstance(live, list) and isinstance(config, list) and (schema.keys or schema.is_set):
        return _combine_lists(live, config, schema)
    return config


def _combine_lists(live: list[Any], config: list[Any], schema: Schema) -> list[Any]:
    there = {item_key(item, schema): item for item in live}
    applied = {item_key(item, schema): item for item in config}
    shared = [key for key in applied if key in there]
    merged, left = [], list(there)
    for key, item in applied.items():
        while left and (left[0] not in applied or (shared and shared[0] != left[0])):
            name = left.pop(0)
            if name not in applied:
                merged.append(there[name])
        if left and left[0] == key:
            left.pop(0)
        if shared and shared[0] == key:
            shared.pop(0)
        merged.append(combine(there[key], item, schema.item()) if key in there else item)
    return [*merged, *(there[name] for name in left if name not in applied)]


def item_key(item: Any, schema: Schema) -> Any:  # noqa: ANN401  # JSON values
    """Return what identifies an item of a list for an apply."""
    return tuple(item.get(key) for key in schema.keys) if schema.keys else item
