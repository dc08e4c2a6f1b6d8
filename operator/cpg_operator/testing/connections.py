"""A connection that records writes, and the writes to send over it."""

import asyncio
from typing import Any

from msgspec.structs import replace

from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_client.errors import ApiError
from cpg_client.resources import CPG_POD_GROUPS, Resource
from cpg_client.timing import Timing
from cpg_engine.testing.builders import metadata
from cpg_operator.writes import TreeKey, Verb, Write
from cpg_operator.writing.writer import Writer

TREE = TreeKey("crd", GroupKey("PodGroup", "default", "a"))
GROUP = "/apis/scheduling.cpg.dev/v1alpha3/namespaces/default/podgroups/a"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


class RecordingConnection:
    """A connection that records requests and fails as a test wants, and the view that takes their answers."""

    timing = Timing(wall=lambda: 0.0)

    def __init__(self) -> None:
        """Accept everything."""
        self.sent: list[tuple[str, str, Any]] = []
        self.errors: dict[str, Exception] = {}
        self.open = asyncio.Event()
        self.open.set()
        self.answers: list[tuple[str, str, bytes]] = []
        self.missing: list[tuple[str, str, str]] = []
        self.deleted: set[str] = set()
        self.has_more = False
        self.answer = b"{}"

    def take_answer(self, flavour: str, write: Write, answer: bytes) -> bool:
        """Record an answer for the view; return whether there is more in it than was written."""
        self.answers.append((flavour, write.resource.plural, answer))
        return self.has_more

    def forget_missing(self, flavour: str, resource: Resource, target: ObjectMeta) -> None:
        """Record an object that the view has to forget."""
        self.missing.append((flavour, resource.plural, target.uid))

    def was_deleted(self, uid: str) -> bool:
        """Return whether the view has seen the end of an object."""
        return uid in self.deleted

    async def patch(self, path: str, body: object, *_: object, params: object = None) -> bytes:
        """Accept a patch."""
        return await self._take("PATCH", path, (body, params))

    async def post(self, path: str, body: object) -> bytes:
        """Accept a new object."""
        return await self._take("POST", path, body)

    async def delete(self, path: str, body: object) -> bytes:
        """Accept a deletion."""
        return await self._take("DELETE", path, body)

    async def _take(self, method: str, path: str, body: object) -> bytes:
        self.sent.append((method, path, body))
        await self.open.wait()
        if path in self.errors:
            raise self.errors[path]
        return self.answer

    def paths(self) -> list[str]:
        """Return method and path of each request."""
        return [f"{method} {path}" for method, path, _ in self.sent]


def write(verb: Verb = Verb.APPLY_STATUS, *, version: str = "1", part: str = "health", **more: Any) -> Write:
    """Return a write to one group."""
    target = replace(metadata("a"), resource_version=version)
    return Write(verb=verb, resource=CPG_POD_GROUPS, target=target, part=part, **{"body": {"x": 1}, **more})


def api_error(status: int, reason: str = "Reason") -> ApiError:
    """Return an error of the API server."""
    return ApiError(status, reason, "message", request="PATCH")


async def write_all(writer: Writer, *writes: Write) -> None:
    """Submit writes and wait for them."""
    writer.submit(TREE, writes)
    await writer.drain()
