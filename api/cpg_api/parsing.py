"""From wire bytes to objects, one by one, so that a bad object is a finding and never a failure.

A LIST is split into its items first and each item is decoded by itself; that costs a quarter more than decoding the
list as a whole, and it means that one object which does not fit the model is set apart, with all its problems and
their paths, while the other ten thousand go on. Decoding reads types alone: what the API server accepts is decided by
the CRDs' schema, not once more here.
"""

import re
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw, Struct, field

from cpg_api.meta import ObjectMeta
from cpg_api.problems import Problem

T = TypeVar("T")

MAX_PROBLEMS = 20
"""Of one object; who has more than that mends some first."""

_PLACE = re.compile(r"^(?P<message>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>\d+)\]")


class Rejected(Struct, frozen=True):
    """An object that does not fit the model: who it is, as far as that can be read, and all that is wrong with it."""

    name: str
    problems: tuple[Problem, ...]


class Page(Struct, Generic[T], frozen=True):
    """One page of a LIST; an empty ``continuation`` says that it is the last."""

    items: tuple[T, ...]
    rejected: tuple[Rejected, ...]
    resource_version: str
    continuation: str


class _ListMeta(Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continuation: str = field(name="continue", default="")


class _RawList(Struct, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: list[Raw] | None = None


class _Named(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind)


def parse_list(data: bytes, kind: type[T]) -> Page[T]:
    """Decode a page of a LIST; raise ``msgspec.DecodeError`` where the bytes are no list at all."""
    page = _decoder(_RawList).decode(data)
    items: list[T] = []
    rejected: list[Rejected] = []
    decode = _decoder(kind).decode
    for raw in page.items or ():
        try:
            items.append(decode(raw))
        except msgspec.ValidationError:
            found = parse_object(raw, kind)
            if isinstance(found, Rejected):
                rejected.append(found)
            else:
                items.append(found)
    return Page(
        items=tuple(items),
        rejected=tuple(rejected),
        resource_version=page.metadata.resource_version,
        continuation=page.metadata.continuation,
    )


def parse_object(data: bytes | Raw, kind: type[T]) -> T | Rejected:
    """Decode one object; raise ``msgspec.DecodeError`` where the bytes are not JSON."""
    try:
        return _decoder(kind).decode(data)
    except msgspec.ValidationError:
        return convert_object(msgspec.json.decode(data), kind)


def convert_object(plain: object, kind: type[T]) -> T | Rejected:
    """Turn plain data, as YAML gives it, into an object.

    As in Kubernetes, a null is a field that is not there. To find every problem rather than the first, what is
    reported wrong is taken out and the rest is tried again, until nothing is wrong or what is wrong cannot be taken
    out without disturbing the paths of what comes after it.
    """
    rest = _without_nulls(plain)
    problems: list[Problem] = []
    while len(problems) < MAX_PROBLEMS:
        try:
            made = msgspec.convert(rest, kind)
        except msgspec.ValidationError as error:
            match = _PLACE.match(str(error))
            message, path = (match["message"], match["path"]) if match else (str(error), None)
            problems.append(Problem(path=(path or "$").removeprefix("$").removeprefix("."), message=message))
            if message.startswith("Object missing") or not _take_out(rest, path or ""):
                break
        else:
            if not problems:
                return made
            break
    return Rejected(name=_name(plain), problems=tuple(problems))


def _without_nulls(plain: object) -> object:
    if isinstance(plain, dict):
        return {key: _without_nulls(value) for key, value in plain.items() if value is not None}
    if isinstance(plain, list):
        return [_without_nulls(value) for value in plain]
    return plain


def _take_out(plain: object, path: str) -> bool:
    """Remove the field that stands at a path; return whether the path was that of a field."""
    steps: list[str | int] = [
        step["name"] if step["name"] is not None else int(step["index"]) for step in _STEP.finditer(path)
    ]
    if not steps or "[...]" in path or isinstance(steps[-1], int):
        return False
    here: Any = plain
    for step in steps[:-1]:
        here = here[step]
    del here[steps[-1]]
    return True


def _name(plain: object) -> str:
    try:
        return msgspec.convert(plain, _Named).metadata.key
    except msgspec.ValidationError:
        return ""
