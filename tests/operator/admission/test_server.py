"""The webhook's server: it passes requests on to Kopf, and allows what Kopf cannot answer."""

import asyncio
import datetime as dt
import ssl
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kopf
import msgspec
import pytest

from cpg_lab.certificates import issue
from cpg_lab.ports import LOOPBACK, free_port
from cpg_operator.admission.server import WebhookServer
from cpg_operator.metrics import OperatorMetrics

UID = {"uid": "u"}
Answer = Callable[[Any], dict[str, Any]]


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """Return a folder with a serving certificate."""
    made = issue(tmp_path, now=dt.datetime.now(dt.UTC), service_ip="10.0.0.1")  # noqa: TID251  # TLS reads the clock
    made.server_key.rename(tmp_path / "tls.key")
    made.server.rename(tmp_path / "tls.crt")
    made.ca.rename(tmp_path / "ca.crt")
    return tmp_path


def server(answer: Answer | None = None) -> tuple[WebhookServer, kopf.WebhookFn]:
    """Return a server, and what stands in for Kopf's function."""

    async def call_handlers(request: Any, **_: object) -> Any:  # noqa: ANN401  # as in Kopf's protocol
        if answer is None:
            raise LookupError("the specified resource has no handlers")
        return {"response": {"uid": request["request"]["uid"], **answer(request["request"])}}

    return WebhookServer((LOOPBACK, free_port()), Path("nowhere"), OperatorMetrics()), call_handlers


async def ask(request: Any, answer: Answer | None = None) -> Any:  # noqa: ANN401  # as JSON is
    """Return the response to a request."""
    found, call_handlers = server(answer)
    body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
    review = msgspec.json.decode(await found._answer(body, call_handlers))
    assert (review["apiVersion"], review["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    return review["response"]


async def test_a_refusal_has_the_reason_of_an_invalid_object() -> None:
    """Kopf sets the code and the message alone."""
    status = {"code": 422, "message": "m"}
    response = await ask(UID, lambda _: {"allowed": False, "status": status, "warnings": ["w"]})
    assert response == {**UID, "allowed": False, "status": {**status, "reason": "Invalid"}, "warnings": ["w"]}


async def test_what_kopf_cannot_answer_is_allowed() -> None:
    """A resource without handlers, or a defect."""
    assert await ask(UID) == {**UID, "allowed": True}


async def test_a_deep_object_is_passed_on_without_its_deepest_levels() -> None:
    """Kopf compares objects by recursion."""
    deep = msgspec.Raw(b'{"f:a":' * 5000 + b"{}" + b"}" * 5000)
    seen: list[Any] = []

    def answer(request: Any) -> dict[str, Any]:  # noqa: ANN401  # as JSON is
        seen.append(request["object"])
        return {"allowed": True}

    assert (await ask({**UID, "object": {"a": {"b": 1}, "deep": deep}}, answer))["allowed"]
    assert seen[0]["a"] == {"b": 1}


@pytest.mark.parametrize("body", [b"{}", b"[", b'{"apiVersion": "v1"}'])
async def test_a_request_that_is_no_review_is_an_error(body: bytes) -> None:
    """The caller gets a 400."""
    found, call_handlers = server()
    with pytest.raises(ValueError, match=r"."):
        await found._answer(body, call_handlers)


async def test_the_server_runs_as_kopf_expects(certificates: Path) -> None:
    """An async generator that serves while it is iterated, and yields no client configuration."""
    port = free_port()
    _, call_handlers = server(lambda _: {"allowed": True})
    generator = WebhookServer((LOOPBACK, port), certificates, OperatorMetrics())(call_handlers)

    async def iterate() -> None:
        await anext(generator)

    serving = asyncio.create_task(iterate())
    context = ssl.create_default_context(cafile=str(certificates / "ca.crt"))
    body = msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "request": UID})

    def post() -> bytes:
        request = urllib.request.Request(f"https://localhost:{port}/admit", body, method="POST")  # loopback
        with urllib.request.urlopen(request, context=context, timeout=5) as response:  # noqa: S310  # likewise
            answer: bytes = response.read()
            return answer

    async def answered() -> bytes:
        while True:
            try:
                return await asyncio.to_thread(post)
            except OSError:
                await asyncio.sleep(0.02)

    async with asyncio.timeout(10):
        answer = await answered()
    assert msgspec.json.decode(answer)["response"] == {**UID, "allowed": True}
    assert not serving.done()
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving
