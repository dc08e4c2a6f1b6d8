"""The errors of this package.

There are two families, because callers treat them differently. ``ApiError`` means that the server answered and refused;
the reason decides what follows (a conflict is read again, a 404 may be a success). The other errors mean that there is
no usable answer. All are a ``ClientError``, so a program needs one ``except`` at its edge.
"""

import textwrap
from http import HTTPStatus
from typing import Final, Self, TypeVar

import msgspec

from cpg_api.decoding import decode

_MAX_MESSAGE_BYTES = 8_192  # a failing /readyz lists every check, and the failed one may be last
_MAX_TEXT_LENGTH = 600
MAX_RETRY_AFTER_SECONDS: Final = 60.0
"""A server cannot ask for a longer wait. API servers ask for seconds; a proxy with a wrong clock could ask for days."""

T = TypeVar("T")


class ClientError(Exception):
    """The base of all errors that this package raises."""


class KubeconfigError(ClientError):
    """A kubeconfig cannot be used; the message names the file and the place in it."""


class NoKubeconfigError(KubeconfigError):
    """No kubeconfig was named, and there is none in the default places."""


class EndpointError(ClientError):
    """The certificates, keys or tokens of an endpoint cannot be used."""


class ConnectionFailedError(ClientError):
    """There was no complete response. Whether the server has acted on the request is unknown."""

    def __init__(self, server: str, request: str, why: str) -> None:
        super().__init__(f"{server}: {request}: {why}")
        self.server = server
        self.request = request
        self.why = why


class AnswerTooLargeError(ConnectionFailedError):
    """The response was longer than the client accepts, and was not read to its end."""


class UnreadableAnswerError(ClientError):
    """A successful response has an unexpected body: a proxy has written it, or it was cut."""


class NotReadyError(ClientError, TimeoutError):
    """The server was not ready in time; the message has its last answer."""


class Cause(msgspec.Struct, frozen=True):
    """One cause of a refusal, such as an invalid field."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Causes(msgspec.Struct, frozen=True):
    causes: tuple[Cause, ...] | None = None


class _RetryHint(msgspec.Struct, frozen=True, rename="camel"):
    retry_after_seconds: int = 0


class _FailureStatus(msgspec.Struct, frozen=True):
    """A ``metav1.Status``. The parts of its details are decoded one by one, so a bad one does not hide the others."""

    kind: str
    reason: str = ""
    message: str = ""
    details: msgspec.Raw = msgspec.Raw(b"{}")

    def causes(self) -> tuple[Cause, ...]:
        """Return the causes; none where they cannot be read."""
        return _decode_or(self.details, _Causes()).causes or ()

    def retry_after(self, header: str | None) -> float | None:
        """Return the seconds after which the server asks for a retry, or None where it asks for none."""
        if header is not None and header.isascii() and header.isdigit():
            return min(float(header), MAX_RETRY_AFTER_SECONDS)
        seconds = _decode_or(self.details, _RetryHint()).retry_after_seconds
        return min(seconds, MAX_RETRY_AFTER_SECONDS) if seconds > 0 else None


class ApiError(ClientError):
    """The server refused a request.

    ``reason`` is the API's reason, such as ``AlreadyExists``. An answer that is not a ``metav1.Status`` gets the name
    of its HTTP status in the same spelling. ``retry_after`` is in seconds, or None where the server does not ask for a
    retry.
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
        """Read a refusal from the API server, a proxy or a load balancer.

        The ``Retry-After`` header wins over ``retryAfterSeconds`` in the body. Its form with a date, which no API
        server sends, is ignored. The wait has an upper limit.
        """
        refusal = _read_status(status, body)
        return cls(
            status,
            refusal.reason or _reason(status),
            refusal.message,
            causes=refusal.causes(),
            retry_after=refusal.retry_after(retry_after),
            request=request,
        )

    def __str__(self) -> str:
        message = f": {self.message}" if self.message else ""
        request = f"{self.request}: " if self.request else ""
        return textwrap.shorten(f"{request}{self.status} {self.reason}{message}", _MAX_TEXT_LENGTH, placeholder=" ...")

    @property
    def is_forbidden(self) -> bool:
        """The request is not allowed; a retry does not help."""
        return self.status == HTTPStatus.FORBIDDEN

    @property
    def is_namespace_ending(self) -> bool:
        """The namespace is being deleted and accepts no new objects."""
        return self.is_forbidden and any(cause.reason == "NamespaceTerminating" for cause in self.causes)

    @property
    def is_not_found(self) -> bool:
        """The object or the whole resource does not exist."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_already_exists(self) -> bool:
        """An object of this name exists already."""
        return self.reason == "AlreadyExists"

    @property
    def is_conflict(self) -> bool:
        """A write was based on an old version. Creating an object that exists is not a conflict in this sense."""
        return self.status == HTTPStatus.CONFLICT and not self.is_already_exists

    @property
    def is_gone(self) -> bool:
        """A resourceVersion or continue token has expired; list again."""
        return self.status == HTTPStatus.GONE


def _decode_or(data: msgspec.Raw, default: T) -> T:
    """Decode a value of the default's type; return the default where that fails."""
    try:
        return decode(data, type(default))
    except msgspec.DecodeError:
        return default


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
