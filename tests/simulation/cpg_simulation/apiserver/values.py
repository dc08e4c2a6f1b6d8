"""What goes into the API server and comes out of it."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

Object: TypeAlias = dict[str, Any]
"""A JSON object that is never changed in place."""


class Request(Struct, frozen=True, kw_only=True):
    """One HTTP request of a user, which is a simulated process; ``manager`` is its default field manager."""

    method: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes = b""
    content_type: str = "application/json"
    user: str = ""
    manager: str = ""


class Answer(Struct, frozen=True):
    """One HTTP answer."""

    status: int
    body: bytes


class Write(Struct, frozen=True, kw_only=True):
    """One change of an object; ``old`` is None for a new object, ``new`` is None for one that is gone."""

    revision: int
    time: float
    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    subresource: str
    old: Object | None
    new: Object | None
    request: Request
