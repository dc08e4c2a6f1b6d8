"""The versions of objects that the watches have shown, and waiting for their changes.

After a write, a state of the object from before the write must not be taken for an answer.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cpg_api.meta import ObjectMeta


class SeenVersions:
    """Versions and waiting coroutines, by any key of an object."""

    def __init__(self) -> None:
        """Start without versions."""
        self._versions: dict[str, int] = {}
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def note(self, key: str, meta: ObjectMeta | None) -> None:
        """Note the version of an object, or that it is gone, and wake the coroutines that wait for it."""
        if meta is None:
            self._versions.pop(key, None)
        else:
            self._versions[key] = version_of(meta)
        self.notify(key)

    def is_seen(self, key: str, version: int) -> bool:
        """Return whether the known state of an object is of this version or a later one."""
        return self._versions.get(key, 0) >= version

    @contextmanager
    def watching(self, keys: Iterable[str]) -> Iterator[asyncio.Event]:
        """Yield an event that is set at each change of one of these objects."""
        event, watched = asyncio.Event(), tuple(keys)
        for key in watched:
            self._waiting.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            for key in watched:
                self._waiting[key].discard(event)
                if not self._waiting[key]:
                    del self._waiting[key]

    def notify(self, key: str) -> None:
        """Wake the coroutines that wait for a change of this object."""
        for event in self._waiting.get(key, ()):
            event.set()


def version_of(meta: ObjectMeta) -> int:
    """Return the version of an object: a number that only grows, which Kubernetes promises since 1.35."""
    return int(meta.resource_version) if meta.resource_version.isdecimal() else 0
