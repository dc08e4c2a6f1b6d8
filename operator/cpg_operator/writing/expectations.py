"""What was written last, remembered until the watch shows it: the view is always a little behind.

A write that was sent for the state that is still the one in view would be sent again by every look until the watch
catches up. So of each part of an object is kept what was sent, and for which version of it; a newer version in view
ends that, and what is so then speaks for itself. What is created has no version yet: a second try is answered by a
conflict, and one that was remembered would keep an object from being made anew that somebody has deleted. What is only
told changes no object: it is the same for every version of it, as long as its body says that it is about the same.

Not everybody who goes is heard of, and the answer to a write may be later than the end of what was written. So what was
sent is remembered for a while only; a view that is behind for longer has it written once more, which changes nothing.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from cpg_operator.writes import Verb, Write

REMEMBERED = 300.0
"""Seconds for which it is remembered what was sent to an object."""


class _Sent(Struct, frozen=True):
    version: str
    body: Any


class Expectations:
    """Writes that have worked, by object and part; no more than were sent in the last few minutes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Expect nothing."""
        self._clock = clock
        self._sent: dict[str, tuple[float, dict[str, _Sent]]] = {}

    def __len__(self) -> int:
        return len(self._sent)

    def met(self, write: Write) -> bool:
        """Tell whether this very write was sent already for the state that it is made from."""
        place, part = write.place
        at, parts = self._sent.get(place, (0.0, {}))
        return parts.get(part) == _sent(write) and not self._is_over(at)

    def note(self, write: Write) -> None:
        """Remember a write that has worked."""
        if write.verb is Verb.CREATE:
            return
        place, part = write.place
        _, parts = self._sent.pop(place, (0.0, {}))
        parts[part] = _sent(write)
        self._sent[place] = (self._clock(), parts)
        while self._is_over(self._sent[oldest := next(iter(self._sent))][0]):
            del self._sent[oldest]

    def forget(self, uid: str) -> None:
        """Drop what was written to an object that is gone."""
        self._sent.pop(uid, None)

    def _is_over(self, at: float) -> bool:
        return self._clock() - at > REMEMBERED


def _sent(write: Write) -> _Sent:
    return _Sent("" if write.verb is Verb.TELL else write.target.resource_version, write.body)
