"""What can go wrong between us and an API server, as values to decide on.

Two families, because callers treat them differently. ``ApiError`` means the server answered and said
no: its reason decides what to do next (a conflict is read again, a not-found may be success). The
other errors mean there is no answer to decide on. Everything raised here on purpose is a
``ClientError``, so that a shell needs one ``except`` at its edge.
"""

import textwrap
from http import HTTPStatus
from typing import Self

import msgspec

from cpg_api.decoding import decode

_MAX_MESSAGE_BYTES = 8_192  # a failing /readyz lists every check, and the failed one may stand last
_MAX_TEXT_LENGTH = 600


class ClientError(Exception):
    """Anything this package raises on purpose."""


class KubeconfigError(ClientError):
    """A kubeconfig cannot be used; the message names the file and the place inside it."""


class NoKubeconfigError(KubeconfigError):
    """Nobody named a kubeconfig, and there is none where they usually are."""


class EndpointError(ClientError):
    """The certificates, keys or tokens an endpoint points at cannot be used."""


class ConnectionFailedError(ClientError):
    """The server gave no complete answer: whether it acted on the request is unknown."""

    def __init__(self, server: str, request: str, why: str) -> None:
        super().__init__(f"{server}: {request}: {why}")
        self.server = server
        self.request = request
        self.why = why


class UnreadableAnswerError(ClientError):
    """What came with a success is not what was asked for: something between us and the server wrote it, or cut it."""


class NotReadyError(ClientError, TimeoutError):
    """The server was not ready in time; the message tells what it last said."""


class Cause(msgspec.Struct, frozen=True):
    """One of the reasons within a refusal, such as one invalid field."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, frozen=True, rename="camel"):
    causes: tuple[Cause, ...] | None = None
    retry_after_seconds: int = 0


class _FailureStatus(msgspec.Struct, frozen=True):
    kind: str
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class ApiError(ClientError):
    """The server answered with anything but success.

    ``reason`` is the API's own word for it (``AlreadyExists``); an answer that is not a
    ``metav1.Status`` gets the name of its HTTP status in the same spelling. ``retry_after`` is in
    seconds, and None unless the server asked to come back.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
        request: str = "",
    ) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after
        self.request = request

    @classmethod
    def from_response(cls, status: int, body: bytes, *, retry_after: str | None = None, request: str = "") -> Self:
        """Read an answer's body, whatever wrote it: the API server, a proxy or a load balancer.

        The ``Retry-After`` header wins over the body's ``retryAfterSeconds``; its date form, which no
        API server sends, counts as absent.
        """
        refusal = _read_status(status, body)
        details = refusal.details or _Details()
        seconds = float(details.retry_after_seconds) or None
        if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
            seconds = float(retry_after)
        return cls(
            status,
            refusal.reason or _reason(status),
            refusal.message,
            causes=details.causes or (),
            retry_after=seconds,
            request=request,
        )

    def __str__(self) -> str:
        said = f": {self.message}" if self.message else ""
        where = f"{self.request}: " if self.request else ""
        return textwrap.shorten(f"{where}{self.status} {self.reason}{said}", _MAX_TEXT_LENGTH, placeholder=" ...")

    @property
    def is_forbidden(self) -> bool:
        """We may not do this; asking again will not help."""
        return self.status == HTTPStatus.FORBIDDEN

    @property
    def is_namespace_ending(self) -> bool:
        """The namespace is being deleted, and takes nothing new."""
        return self.is_forbidden and any(cause.reason == "NamespaceTerminating" for cause in self.causes)

    @property
    def is_not_found(self) -> bool:
        """The object, or the whole resource, is not there."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_already_exists(self) -> bool:
        """A create met an object of the same name."""
        return self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """A write was based on a state that is no longer current; creating what exists is not this."""
        return self.status == HTTPStatus.CONFLICT and not self.is_already_exists

    @property
    def is_gone(self) -> bool:
        """A resourceVersion or continue token has expired: list again."""
        return self.status == HTTPStatus.GONE


def _read_status(status: int, body: bytes) -> _FailureStatus:
    try:
        refusal = decode(body, _FailureStatus)
    except msgspec.DecodeError:
        refusal = _FailureStatus(kind="")
    if refusal.kind == "Status":
        return refusal
    text = body[:_MAX_MESSAGE_BYTES].decode(errors="replace").strip()
    return _FailureStatus(kind="Status", reason=_reason(status), message=text)


def _reason(status: int) -> str:
    try:
        return HTTPStatus(status).phrase.replace(" ", "")
    except ValueError:
        return "Unknown"
