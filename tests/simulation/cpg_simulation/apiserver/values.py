"""What goes into the API server and comes out of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
"""A JSON object that is never changed in place."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One HTTP request of a user, which is a simulated process; ``manager`` is its default field manager."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    content_type: str = "application/json"
    user: str = ""
    manager: str = ""


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Write:
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
