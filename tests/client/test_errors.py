"""Refusals as exceptions."""

import pytest

from cpg_client.errors import ApiError, Cause, ConnectionFailedError

INVALID = b"""{
  "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Invalid", "code": 422,
  "message": "Pod \\"web\\" is invalid: spec.containers: Required value",
  "details": {
    "name": "web", "kind": "Pod",
    "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}]
  }
}"""


def test_a_status_body_is_read() -> None:
    """Reason, message and causes are those of the metav1.Status."""
    error = ApiError.from_response(422, INVALID, request="POST /api/v1/namespaces/a/pods")
    assert error.status == 422
    assert error.reason == "Invalid"
    assert error.message == 'Pod "web" is invalid: spec.containers: Required value'
    assert error.causes == (Cause("FieldValueRequired", "Required value", "spec.containers"),)
    assert error.retry_after is None


def test_the_text_names_request_status_reason_and_message() -> None:
    """It is one line that is clear by itself in a log."""
    error = ApiError.from_response(422, INVALID, request="POST /api/v1/namespaces/a/pods")
    assert str(error) == (
        'POST /api/v1/namespaces/a/pods: 422 Invalid: Pod "web" is invalid: spec.containers: Required value'
    )


def test_a_long_text_becomes_one_bounded_line() -> None:
    """Without line breaks and pages of HTML from a proxy."""
    line = str(ApiError.from_response(502, b"<html>\n" + b"Bad  gateway\n" * 2_000))
    assert "\n" not in line
    assert line.startswith("502 BadGateway: <html> Bad gateway")
    assert len(line) <= 600


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xfe", b"null", b'"text"', b'{"kind": "Pod"}', b'{"kind": 1}', b'{"kind": "Status", "details": 1}'],
)
def test_any_other_body_is_accepted(body: bytes) -> None:
    """The HTTP status gives the reason then."""
    error = ApiError.from_response(404, body)
    assert error.reason == "NotFound"
    assert error.is_not_found
    assert str(error).startswith("404 NotFound")


def test_an_unknown_status_has_an_unknown_reason() -> None:
    """A status that HTTP does not define is no failure."""
    assert str(ApiError.from_response(599, b"")) == "599 Unknown"


def test_a_status_without_reason_gets_that_of_http() -> None:
    """Old servers leave the reason out."""
    assert ApiError.from_response(503, b'{"kind": "Status"}').reason == "ServiceUnavailable"


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [
        ("3", b"", 3),
        ("3", b'{"kind": "Status", "details": {"retryAfterSeconds": 9}}', 3),
        (None, b'{"kind": "Status", "details": {"retryAfterSeconds": 9}}', 9),
        (None, b'{"kind": "Status", "details": {"causes": null}}', None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", b"", None),
        ("\u0663", b"", None),
        (None, b"", None),
        ("0", b"", 0),
        ("86400", b"", 60),
        ("9" * 400, b"", 60),
        ("-1", b"", None),
        (None, b'{"kind": "Status", "details": {"retryAfterSeconds": 86400}}', 60),
        (None, b'{"kind": "Status", "details": {"retryAfterSeconds": %s}}' % (b"9" * 400), 60),
        (None, b'{"kind": "Status", "details": {"retryAfterSeconds": -5}}', None),
        (None, b'{"kind": "Status", "details": {"retryAfterSeconds": "soon"}}', None),
    ],
)
def test_retry_after(header: str | None, body: bytes, seconds: float | None) -> None:
    """The header wins over the body, only a number of seconds counts, and a minute is the longest wait."""
    assert ApiError.from_response(429, body, retry_after=header).retry_after == seconds


def test_a_bad_detail_does_not_hide_the_others() -> None:
    """Reason and causes decide what a caller does next, so they are read beside a retry hint of the wrong type."""
    details = b'{"retryAfterSeconds": "soon", "causes": [{"reason": "NamespaceTerminating"}]}'
    error = ApiError.from_response(403, b'{"kind": "Status", "reason": "Forbidden", "details": %s}' % details)
    assert error.is_namespace_ending
    assert error.retry_after is None


@pytest.mark.parametrize(
    ("status", "reason", "holds"),
    [
        (403, "Forbidden", "is_forbidden"),
        (404, "NotFound", "is_not_found"),
        (409, "Conflict", "is_conflict"),
        (409, "AlreadyExists", "is_already_exists"),
        (410, "Expired", "is_gone"),
        (410, "Gone", "is_gone"),
        (500, "InternalError", None),
    ],
)
def test_each_refusal_has_one_meaning(status: int, reason: str, holds: str | None) -> None:
    """In particular, an existing object is no conflict."""
    error = ApiError(status, reason, "")
    predicates = ("is_forbidden", "is_not_found", "is_conflict", "is_already_exists", "is_gone")
    assert [name for name in predicates if getattr(error, name)] == ([holds] if holds else [])


def test_a_failed_connection_names_server_and_request() -> None:
    """In the message and in attributes."""
    error = ConnectionFailedError("https://api.test", "GET /version", "refused")
    assert str(error) == "https://api.test: GET /version: refused"
    assert (error.server, error.request, error.why) == ("https://api.test", "GET /version", "refused")
