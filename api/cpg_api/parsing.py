"""Decode objects one by one, so that a bad object is a result and not a failure.

A LIST is split into its items, and each item is decoded by itself. That costs a quarter more than decoding the list as
a whole. In return one object that does not fit the model is rejected, with all its problems and their paths, and the
other ten thousand are read. Decoding checks types alone: the schema of the CRDs decides what the API server accepts.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from types import NoneType
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field, inspect

from cpg_api.decoding import decode, decoder
from cpg_api.nesting import MAX_NESTING, cut_nesting
from cpg_api.problems import Problem, child_path

T = TypeVar("T", bound=Struct)

MAX_PROBLEMS = 20
"""Problems that are reported of one object."""

_MISFIT_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_MSGSPEC_MESSAGE = re.compile(r"(?P<message>.*?)(?: - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`)?", re.DOTALL)
_SHAPES: dict[type[inspect.Type], tuple[str, tuple[type, ...]]] = {
    inspect.NoneType: ("null", (NoneType,)),
    inspect.BoolType: ("bool", (bool,)),
    inspect.IntType: ("int", (int,)),
    inspect.FloatType: ("float", (float, int)),
    inspect.StrType: ("str", (str,)),
    inspect.VarTupleType: ("array", (list, tuple)),
    inspect.DictType: ("object", (dict,)),
    inspect.StructType: ("object", (dict,)),
}
"""The name of each type in JSON, and the Python types that it is read from."""


class Rejected(Struct, frozen=True):
    """An object that does not fit the model: its name, as far as that can be read, and all its problems."""

    name: str
    problems: tuple[Problem, ...]


class ParsedList(Struct, Generic[T], frozen=True):
    """One page of a LIST; an empty ``continue_token`` marks the last page."""

    items: tuple[T, ...]
    rejected: tuple[Rejected, ...]
    resource_version: str
    continue_token: str


class _ListMeta(Struct, frozen=True, rename="camel"):
    resource_version: str | None = None
    continue_token: str | None = field(name="continue", default=None)


class _RawList(Struct, frozen=True):
    metadata: _ListMeta | None = None
    items: list[Raw] | None = None


class _Name(Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _NamedObject(Struct, frozen=True):
    metadata: _Name = _Name()

    def __str__(self) -> str:
        return f"{self.metadata.namespace}/{self.metadata.name}" if self.metadata.namespace else self.metadata.name


@cache
def _shape(kind: type) -> inspect.Type:
    return inspect.type_info(kind)


def parse_list(data: bytes, kind: type[T]) -> ParsedList[T]:
    """Decode a page of a LIST; raise ``msgspec.DecodeError`` where the bytes are not a list."""
    page = decode(data, _RawList)
    metadata = page.metadata or _ListMeta()
    items: list[T] = []
    rejected: list[Rejected] = []
    decode_item = decoder(kind).decode
    for raw in page.items or ():
        try:
            items.append(decode_item(raw))
        except _MISFIT_ERRORS:
            found = parse_object(raw, kind)
            if isinstance(found, Rejected):
                rejected.append(found)
            else:
                items.append(found)
    return ParsedList(
        items=tuple(items),
        rejected=tuple(rejected),
        resource_version=metadata.resource_version or "",
        continue_token=metadata.continue_token or "",
    )


def parse_object(data: bytes | Raw, kind: type[T]) -> T | Rejected:
    """Decode one object; raise nothing, also where the bytes are not JSON: an answer may be a page of a proxy."""
    typed: msgspec.json.Decoder[T] = decoder(kind)
    try:
        return typed.decode(data)
    except _MISFIT_ERRORS as error:
        complaint = str(error)
    shallow = cut_nesting(bytes(data))
    try:
        plain = decoder(Any).decode(shallow)
    except _MISFIT_ERRORS:  # no JSON, or with a number or a string that no Python value can hold
        return Rejected(name=_read_name(shallow), problems=(_problem(complaint),))
    return convert_object(plain, kind)


def convert_object(plain: object, kind: type[T]) -> T | Rejected:
    """Convert plain data, as read from YAML, to an object. As in Kubernetes, a null field counts as missing."""
    rest = _without_nulls(plain, MAX_NESTING)
    try:
        return msgspec.convert(rest, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:  # a lone surrogate is no text
        problems = tuple(islice(_problems(rest, _shape(kind), ""), MAX_PROBLEMS))
        return Rejected(name=_plain_name(rest), problems=problems or (_problem(str(error)),))


def _problems(plain: object, shape: inspect.Type, path: str) -> Iterator[Problem]:
    """Yield every reason why plain data does not fit a type. msgspec itself stops at the first."""
    members = [_unwrap(member) for member in (shape.types if isinstance(shape, inspect.UnionType) else (shape,))]
    fitting = next((member for member in members if _fits(plain, member)), None)
    match fitting, plain:
        case None, _:
            wanted = " | ".join(_SHAPES[type(member)][0] for member in members)
            yield Problem(path, f"Expected `{wanted}`, got `{_json_name(plain)}`")
        case inspect.StructType(), dict():
            yield from _struct_problems(plain, fitting, path)
        case inspect.DictType(), dict():
            yield from _map_problems(plain, fitting, path)
        case inspect.VarTupleType(), list() | tuple():
            for index, item in enumerate(plain):
                yield from _problems(item, _unwrap(fitting.item_type), f"{path}[{index}]")


def _struct_problems(plain: dict[object, object], shape: inspect.StructType, path: str) -> Iterator[Problem]:
    for one in shape.fields:
        if one.encode_name in plain:
            yield from _problems(plain[one.encode_name], _unwrap(one.type), child_path(path, one.encode_name))
        elif one.required:
            yield Problem(child_path(path, one.encode_name), "Missing, but required")


def _map_problems(plain: dict[object, object], shape: inspect.DictType, path: str) -> Iterator[Problem]:
    for key, value in plain.items():
        if not isinstance(key, str):
            yield Problem(path, f"Expected `str`, got `{_json_name(key)}` as the key {key!r}")
        yield from _problems(value, _unwrap(shape.value_type), f"{path}[{key}]")


def _unwrap(shape: inspect.Type) -> inspect.Type:
    return shape.type if isinstance(shape, inspect.Metadata) else shape


def _fits(plain: object, shape: inspect.Type) -> bool:
    """Return whether the outermost layer fits. Types that the model does not use are left to msgspec."""
    return type(shape) not in _SHAPES or type(plain) in _SHAPES[type(shape)][1]


def _json_name(plain: object) -> str:
    names = (name for name, types in _SHAPES.values() if type(plain) in types)
    return next(names, type(plain).__name__)


def _problem(complaint: str) -> Problem:
    """Split a message of msgspec into text and path: it ends with the place, written as a JSON path."""
    match = _MSGSPEC_MESSAGE.fullmatch(complaint)
    return Problem(match["path"] or "", match["message"]) if match else Problem("", complaint)


def _without_nulls(plain: object, room: int) -> object:
    if not room:
        return None
    if isinstance(plain, dict):
        return {key: _without_nulls(value, room - 1) for key, value in plain.items() if value is not None}
    if isinstance(plain, list):
        return [_without_nulls(value, room - 1) for value in plain]
    return plain


def _read_name(data: bytes) -> str:
    try:
        return str(decoder(_NamedObject).decode(data))
    except _MISFIT_ERRORS:
        return ""


def _plain_name(plain: object) -> str:
    try:
        return str(msgspec.convert(plain, _NamedObject))
    except (msgspec.ValidationError, UnicodeEncodeError):
        return ""
