"""Decode JSON that another process has written: an API server, a credential plugin, a dump.

Every answer goes through ``decode``. Used directly, msgspec raises three unrelated errors: ``DecodeError`` for bad
JSON, ``UnicodeDecodeError`` for bad UTF-8, and ``RecursionError`` for an object that is nested by the thousand, which
any user with write access can create. One odd object would end a caller that forgets one of them.
"""

from functools import cache
from typing import Any, TypeVar, overload

import msgspec
from msgspec import Raw

from cpg_api.nesting import cut_nesting

T = TypeVar("T")


@overload
def decode(data: bytes | str | Raw) -> Any: ...  # noqa: ANN401  # plain JSON


@overload
def decode(data: bytes | str | Raw, kind: type[T]) -> T: ...


def decode(data: bytes | str | Raw, kind: Any = Any) -> Any:  # plain JSON without a type
    """Decode JSON; raise ``msgspec.DecodeError``, and nothing else, where it is malformed or does not fit the type.

    JSON that is nested too deeply is decoded without its deepest levels.
    """
    try:
        return decoder(kind).decode(data)
    except UnicodeError as error:
        raise msgspec.DecodeError(str(error)) from error
    except RecursionError:
        shallow = cut_nesting(data.encode() if isinstance(data, str) else bytes(data))
    try:
        return decoder(kind).decode(shallow)
    except (UnicodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error


@cache
def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """Return msgspec's decoder for a type. It raises more errors than ``decode``."""
    return msgspec.json.Decoder(kind)
