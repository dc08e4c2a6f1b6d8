"""What was written last, remembered until the watch shows it: the view is always a little behind.

A write that was sent for the state that is still the one in view would be sent again by every look until the watch
catches up. So of each part of an object is kept what was sent, and for which version of it; a newer version in view
ends that, and what is so then speaks for itself. What is created has no version yet: a second try is answered by a
conflict, and one that was remembered would keep an object from being made anew that somebody has deleted.
"""

from typing import Any

from msgspec import Struct

from cpg_operator.writes import Verb, Write


class _Sent(Struct, frozen=True):
    version: str
    body: Any


class Expectations:
    """Writes that have worked, by object and part."""

    def __init__(self) -> None:
        """Expect nothing."""
        self._sent: dict[str, dict[str, _Sent]] = {}

    def met(self, write: Write) -> bool:
        """Tell whether this very write was sent already for the state that it is made from."""
        place, part = write.place
        sent = self._sent.get(place, {}).get(part)
        return sent is not None and sent == _Sent(write.target.resource_version, write.body)

    def note(self, write: Write) -> None:
        """Remember a write that has worked."""
        if write.verb is Verb.CREATE:
            return
        place, part = write.place
        self._sent.setdefault(place, {})[part] = _Sent(write.target.resource_version, write.body)

    def forget(self, uid: str) -> None:
        """Drop what was written to an object that is gone."""
        self._sent.pop(uid, None)
