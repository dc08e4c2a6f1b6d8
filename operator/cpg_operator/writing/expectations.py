"""What was written last, remembered until the watch shows it: the view is always a little behind.

Without this, every reconcile would repeat a write until the watch catches up. For each part of an object the last body
is kept with the version that it was made for. A newer version in the view ends that: then the object itself shows what
is missing. A creation has no version yet: a second one is answered with a conflict, and remembering it would prevent
creating an object again that a user has deleted. An event changes no object, so it counts for every version, as long as
its body identifies the same occasion. A write that is to be sent once counts for every version and body.

A deletion may go unheard, and the answer to a write may arrive after the end of its object, so entries expire. If the
view is behind for longer than that, the write is repeated, which changes nothing.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from cpg_operator.writes import REMEMBERED_SECONDS, Verb, Write


class _Sent(Struct, frozen=True):
    version: str
    body: Any


class Expectations:
    """Writes that have succeeded, by object and part; no more than were sent in the last few minutes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Expect nothing."""
        self._clock = clock
        self._sent: dict[str, tuple[float, dict[str, _Sent]]] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def is_met(self, write: Write) -> bool:
        """Return whether this write has already been sent for the version that it was made from."""
        name, part = write.object_part
        at, parts = self._sent.get(name, (0.0, {}))
        return parts.get(part) == _sent(write) and not self._is_over(at)

    def record(self, write: Write) -> None:
        """Remember a write that has succeeded."""
        if write.verb is Verb.CREATE:
            return
        name, part = write.object_part
        _, parts = self._sent.pop(name, (0.0, {}))
        parts[part] = _sent(write)
        self._sent[name] = (self._clock(), parts)
        while self._is_over(self._sent[oldest := next(iter(self._sent))][0]):
            del self._sent[oldest]

    def forget(self, uid: str) -> None:
        """Drop what was written to an object that has been deleted."""
        self._sent.pop(uid, None)

    def _is_over(self, at: float) -> bool:
        return self._clock() - at > REMEMBERED_SECONDS


def _sent(write: Write) -> _Sent:
    if write.once:
        return _Sent("", None)
    return _Sent("" if write.verb is Verb.EVENT else write.target.resource_version, write.body)
