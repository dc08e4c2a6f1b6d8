"""Watches: the changes of a collection after a revision, as lines that the reader takes one by one."""

import msgspec

from cpg_simulation.apiserver.matching import Matches, match_all, matcher
from cpg_simulation.apiserver.refusals import RefusedError, expired
from cpg_simulation.apiserver.storage import Change, Storage, Stored
from cpg_simulation.apiserver.transactions import Call


class Watch:
    """One accepted watch. It ends by ``end``, or after the error that is its only line."""

    def __init__(self, storage: Storage, call: Call) -> None:
        """Start after the version of the request, or with all objects of now."""
        query = call.request.query
        self.is_ended = False
        self.timeout_seconds = int(query.get("timeoutSeconds") or 0)
        """After this time the server has to end the watch; 0 for its own choice."""
        self.wants_bookmarks = query.get("allowWatchBookmarks") == "true"
        self.call = call
        self._storage = storage
        self._collection = storage.collections[call.kind]
        self._prefix = f"{call.namespace}/" if call.namespace else ""
        self._matches: Matches = matcher(query)
        self._first: list[bytes] = []
        self._next = len(self._collection.changes)
        self._version = storage.revision
        self._start(query.get("resourceVersion", ""))

    @property
    def version(self) -> int:
        """The revision up to which lines were taken."""
        return self._version

    @property
    def has_lines(self) -> bool:
        """Whether a line is ready."""
        self._skip()
        return bool(self._first) or self._next < len(self._collection.changes)

    def take(self, limit: int) -> list[bytes]:
        """Return the lines that are ready, the oldest first."""
        lines = self._first[:limit]
        del self._first[:limit]
        while len(lines) < limit and self.has_lines:
            change = self._collection.changes[self._next]
            self._next += 1
            self._version = change.revision
            lines.append(self._line(change))
        return lines

    def bookmark(self) -> bytes:
        """Return a bookmark: the version of the server, or that of the last line if others are ready."""
        if not self.has_lines and not self.is_ended:
            self._version = max(self._version, self._storage.revision)
        resource = self.call.kind.resource
        found = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": {"resourceVersion": str(self._version), "creationTimestamp": None},
        }
        return _event(b"BOOKMARK", msgspec.json.encode(found))

    def end(self) -> None:
        """End the watch without another line."""
        self._first.clear()
        self._next = len(self._collection.changes)
        self.is_ended = True

    def _start(self, text: str) -> None:
        if text and not text.isdecimal():
            raise RefusedError(500, "", f'resourceVersion: Invalid value: "{text}"')
        version = int(text or 0)
        if version == 0:
            found = self._collection.sorted()
            self._first = [_event(b"ADDED", one.body) for key, one in found if self._shows(key, one)]
        elif version < max(self._storage.compacted, self._storage.watched_since):
            why = f"too old resource version: {version} ({self._storage.compacted})"
            self._first = [_event(b"ERROR", expired(why).answer.body)]
            self.is_ended = True
        else:
            self._version, self._next = version, self._collection.after(version)

    def _skip(self) -> None:
        """Skip the changes that this watch does not show."""
        changes = self._collection.changes
        while self._next < len(changes):
            change = changes[self._next]
            if change.revision > self._version and (self._shown(change.new, change) or self._shown(change.old, change)):
                return
            self._next += 1

    def _shown(self, found: Stored | None, change: Change) -> bool:
        return found is not None and self._shows(change.key, found)

    def _shows(self, key: str, found: Stored) -> bool:
        return key.startswith(self._prefix) and (self._matches is match_all or self._matches(found.value))

    def _line(self, change: Change) -> bytes:
        """Return an event; an object that no longer matches is deleted for this watch."""
        if change.new is None or not self._shown(change.new, change):
            return _event(b"DELETED", change.deleted)
        return _event(b"MODIFIED" if self._shown(change.old, change) else b"ADDED", change.new.body)


def _event(kind: bytes, body: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind, body)
