"""The page of the settings files: every field of their structs."""

from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from msgspec import NODEFAULT, Struct, inspect

from cpg_operator.settings import Settings as OperatorSettings
from cpg_scheduler.settings import SchedulerSettings
from reference.sources import docstring, docstrings_of, escaped

HEADER = """\
# Settings

<!-- Generated from the structs by `python tools/generate_reference.py`. Do not edit. -->

Both processes read a YAML file at their start (`--config FILE`; in the chart `scheduler.settings` and
`operator.settings`). An unknown field or a value of the wrong type is an error that names it.
[Options](executables.md) override the file. Times are in seconds.
"""
NAMES = {
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "string",
}


def page() -> str:
    """Return the page."""
    parts = [HEADER]
    for title, struct in (("Scheduler", SchedulerSettings), ("Operator", OperatorSettings)):
        rows = "".join(_rows(struct))
        parts.append(f"\n## {title}\n\n| field | type | default | meaning |\n| --- | --- | --- | --- |\n{rows}")
    return "".join(parts)


def _rows(struct: type[Struct], above: str = "") -> Iterator[str]:
    told = docstrings_of(struct)
    for field in msgspec.structs.fields(struct):
        name = f"{above}{field.encode_name}"
        if isinstance(field.type, type) and issubclass(field.type, Struct):
            yield from _rows(field.type, f"{name}.")
            continue
        about = escaped(docstring(told, field.name, struct))
        yield f"| `{name}` | {_type(field.type)} | {_default(field)} | {about} |\n"
        yield from _rows_of_items(field.type, f"{name}[].")


def _rows_of_items(kind: Any, above: str) -> Iterator[str]:  # noqa: ANN401 - an annotation
    """Yield the rows of the objects in a list."""
    for item in get_args(kind):
        if isinstance(item, type) and issubclass(item, Struct):
            yield from _rows(item, above)


def _type(kind: Any) -> str:  # noqa: ANN401 - an annotation
    found = inspect.type_info(kind)
    if isinstance(found, inspect.LiteralType):
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if isinstance(found, inspect.VarTupleType) and isinstance(found.item_type, inspect.StructType):
        return "list of objects"
    return NAMES.get(type(found), "list of strings")


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not NODEFAULT else field.default_factory()
    return f"`{msgspec.json.encode(value).decode()}`"
