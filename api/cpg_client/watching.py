"""WATCH a collection: an endless stream of its changes after a version.

**Disconnects lose nothing.** A watch ends often: the server closes it after ``timeoutSeconds``, a load balancer cuts
it, one of several servers restarts. The next request resumes after the version of the last event or bookmark. So lost
connections and throttling (429, 503) are retried here. All other errors are raised, since they need a new list:

- ``ApiError.is_gone``, as status 410 or as an ERROR event: the version has expired;
- any other refusal, such as 504 for a version that the server does not have yet. After the restore of a backup of etcd
  some servers accept such a watch and send nothing; ``freshness`` notices that;
- ``UnreadableAnswerError``: the line may have been an event, and only a list shows its content;
- a connection that stays lost for some seconds: the server that answers then may have another history. After the
  restore of a backup of etcd it may have grown past our version by then, and a watch that resumes there misses all that
  it has done before. A restore takes all API servers down for longer than that.

A line without its newline was cut; it is dropped, and the server sends the event again.

**Streams are short.** Bookmarks come about once a minute, but a quiet server sends none. The server ends each stream
after a minute, so the server is heard from once a minute, and a longer silence means a failure. A peer that
accepts TCP but does not answer is detected, too. The price is one request per resource and minute, which the server
answers from its watch cache.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Literal

import msgspec

from cpg_api.decoding import decode
from cpg_client.connection import Connection, Params
from cpg_client.errors import ApiError, ClientError, ConnectionFailedError, UnreadableAnswerError
from cpg_client.http1 import MAX_LINE_BYTES
from cpg_client.retrying import WatchBackoff
from cpg_client.watch_health import MAX_SECONDS_TO_RESUME

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]

_MIN_STREAM_SECONDS = 1.0


class WatchEvent(msgspec.Struct, frozen=True):
    """One change; a bookmark has only a version.

    The object is a view into the received line and keeps it in memory.
    """

    type: EventType
    resource_version: str
    object: msgspec.Raw


def _ignore(*_: object) -> None:
    """Do nothing: the default of the hooks."""


@dataclass(frozen=True, kw_only=True)
class WatchHooks:
    """Callbacks about the stream itself.

    ``on_accepted``: the server has begun to answer. ``on_failed``: a request has failed and is retried after some
    seconds.
    """

    on_accepted: Callable[[], None] = _ignore
    on_failed: Callable[[ClientError, float], None] = _ignore


@dataclass(frozen=True, kw_only=True)
class WatchSettings:
    """How long the server keeps a stream open, and how long it may be silent beyond that before it counts as lost."""

    timeout_seconds: int = 60
    grace: float = 15.0
    backoff: WatchBackoff = field(default_factory=WatchBackoff)


DEFAULT_SETTINGS = WatchSettings()


class _Envelope(msgspec.Struct, frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _EventMeta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion")


class _EventObject(msgspec.Struct, frozen=True):
    metadata: _EventMeta


class _ErrorStatus(msgspec.Struct, frozen=True):
    code: int = 500


class LineSplitter:
    """Splits chunks into lines; each byte is scanned once, however long a line is."""

    def __init__(self, longest: int = MAX_LINE_BYTES) -> None:
        self._longest = longest
        self._parts: list[bytes] = []
        self._length = 0

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the lines that the chunk completes, without empty ones."""
        *whole, rest = piece.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._parts, whole[0]))
            self._parts, self._length = [], 0
        self._parts.append(rest)
        self._length += len(rest)
        if self._length > self._longest:
            raise UnreadableAnswerError(f"a line of a watch is longer than {self._longest} bytes")
        return [line for line in whole if line]


def read_event(line: bytes, request: str = "") -> WatchEvent:
    """Parse a line; raise the ``ApiError`` that it reports, or ``UnreadableAnswerError``.

    Of the object only the version is read: it is needed even where the object does not fit its type.
    """
    try:
        envelope = decode(line, _Envelope)
        if envelope.type != "ERROR":
            version = decode(envelope.object, _EventObject).metadata.resource_version
            return WatchEvent(envelope.type, version, envelope.object)
        status = decode(envelope.object, _ErrorStatus).code
    except msgspec.DecodeError as error:
        start = line[:80].decode(errors="replace")
        raise UnreadableAnswerError(f"{request}: not a watch event: {error}: {start!r}") from error
    raise ApiError.from_response(status, bytes(envelope.object), request=request)


async def watch(
    connection: Connection,
    path: str,
    resource_version: str,
    *,
    params: Params | None = None,
    settings: WatchSettings = DEFAULT_SETTINGS,
    hooks: WatchHooks = WatchHooks(),
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the changes at ``path`` after ``resource_version``, without end; ``params`` may hold selectors.

    Close it with ``aclosing``, so that its connection is released at once.
    """
    version, failures, timing = resource_version, 0, connection.timing
    outage = _Outage(timing.elapsed, connection.pauses.recent, settings)
    hooks = replace(hooks, on_accepted=outage.end_with(hooks.on_accepted))
    while True:
        began, received = timing.clock(), False
        try:
            async with aclosing(_one_stream(connection, path, version, params or {}, settings, hooks)) as events:
                async for event in events:
                    received, version = True, event.resource_version
                    outage.end()
                    yield event
            if received or timing.clock() - began >= _MIN_STREAM_SECONDS:
                failures = 0
                continue
            error: ClientError = ConnectionFailedError(connection.endpoint.server, f"WATCH {path}", "closed at once")
        except ClientError as problem:
            if not _can_wait_out(problem):
                raise
            error = problem
            if isinstance(error, ConnectionFailedError):
                outage.begin()
        failures = 1 if received else failures + 1
        wait = settings.backoff.wait(failures, error)
        if outage.lasts_too_long(wait):
            raise error
        hooks.on_failed(error, wait)
        await timing.sleep(wait)
        if outage.lasts_too_long(0.0):  # the process was suspended meanwhile
            raise error


class _Outage:
    """For how long a watch has been without a connection."""

    def __init__(self, clock: Callable[[], float], pause: Callable[[], float], settings: WatchSettings) -> None:
        """Start with a connection. ``pause`` returns for how long the process has seen nothing just now."""
        self._clock = clock
        self._pause = pause
        self._silence = settings.timeout_seconds + settings.grace
        self._heard = clock()
        self._began: float | None = None

    def end(self) -> None:
        """Note that the server has sent something."""
        self._heard, self._began = self._clock(), None

    def end_with(self, hook: Callable[[], None]) -> Callable[[], None]:
        """Return a hook that ends the outage as well."""

        def accepted() -> None:
            self.end()
            hook()

        return accepted

    def begin(self) -> None:
        """Note that the connection is lost; a silent server may have been gone for as long as it was silent.

        So may one that was lost while the process was suspended.
        """
        now = self._clock()
        if self._began is None:
            self._began = self._heard if now - self._heard >= self._silence else now - self._pause()

    def lasts_too_long(self, wait: float) -> bool:
        """Return whether the watch must not resume after this wait."""
        return self._began is not None and self._clock() + wait - self._began >= MAX_SECONDS_TO_RESUME


def _can_wait_out(error: ClientError) -> bool:
    return isinstance(error, ConnectionFailedError) or (isinstance(error, ApiError) and error.status in {429, 503})


async def _one_stream(
    connection: Connection,
    path: str,
    version: str,
    params: Params,
    settings: WatchSettings,
    hooks: WatchHooks,
) -> AsyncGenerator[WatchEvent, None]:
    """Yield the events of one request."""
    query: dict[str, str | int] = {
        **params,
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": version,
        "timeoutSeconds": settings.timeout_seconds,
    }
    lines = LineSplitter()
    async with aclosing(connection.stream(path, query, silence=settings.timeout_seconds + settings.grace)) as pieces:
        async for piece in pieces:
            if not piece:
                hooks.on_accepted()
            for line in lines.feed(piece):
                yield read_event(line, f"WATCH {path}")
