"""Rules and what they find, as values."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Object: TypeAlias = Mapping[str, Any]
"""An object of the API as plain JSON; it is never changed in place."""


class SentRequest(Protocol):
    """What the rules read of a request."""

    @property
    def method(self) -> str:
        """Its method."""

    @property
    def path(self) -> str:
        """Its path."""

    @property
    def user(self) -> str:
        """The process or user that has sent it."""

    @property
    def query(self) -> Mapping[str, str]:
        """The parameters of its query."""

    @property
    def manager(self) -> str:
        """The field manager if the query names none."""

    @property
    def body(self) -> bytes:
        """Its body."""


class RecordedWrite(Protocol):
    """What the rules read of an entry in the journal of the API server."""

    @property
    def revision(self) -> int:
        """The revision that it made."""

    @property
    def time(self) -> float:
        """The time of the server."""

    @property
    def user(self) -> str:
        """The process or user that wrote."""

    @property
    def verb(self) -> str:
        """The way of writing."""

    @property
    def resource(self) -> str:
        """The resource, such as ``podgroups.scheduling.cpg.dev``."""

    @property
    def namespace(self) -> str:
        """The namespace; empty for none."""

    @property
    def name(self) -> str:
        """The name."""

    @property
    def subresource(self) -> str:
        """The subresource; empty for none."""

    @property
    def old(self) -> Any:  # noqa: ANN401 - JSON
        """The object before; None for a new one."""

    @property
    def new(self) -> Any:  # noqa: ANN401 - JSON
        """The object after it; None once it is gone."""

    @property
    def request(self) -> SentRequest | None:
        """The request that caused it; None for what the server does by itself."""


@dataclass(frozen=True)
class Finding:
    """A broken rule: the objects, as ``Kind namespace/name``, and a sentence."""

    objects: tuple[str, ...]
    sentence: str


@dataclass(frozen=True)
class Expectation:
    """What has to be the case after some quiet seconds; ``broken`` is asked then, and returns what is wrong.

    A fault in that time starts the seconds anew, or ends the expectation if it ``is_dropped_by_faults``.
    """

    seconds: float
    broken: Callable[[], Finding | None]
    is_dropped_by_faults: bool = False


@dataclass(frozen=True)
class Violation:
    """A finding, with its rule and the time; ``revision`` is that of the write that showed it."""

    rule: str
    time: float
    revision: int
    objects: tuple[str, ...]
    sentence: str

    def __str__(self) -> str:
        return f"{self.time:.3f} s, revision {self.revision}: {self.rule}: {self.sentence}"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A promise in one sentence, the quiet seconds that it allows, and the check that finds where it is broken."""

    name: str
    promise: str
    check: Callable[..., Iterable[Finding | Expectation]]
    seconds: float = 0.0
