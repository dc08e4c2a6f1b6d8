"""A fake API server for claims: versions, merges of consumers and finalizers, and a watch that a test can delay."""

import asyncio
import copy
from typing import Any, cast

import msgspec

from cpg_api.core.devices import ResourceClaim
from cpg_client.connection import MERGE_PATCH
from cpg_client.errors import ApiError
from cpg_client.resources import PODS, RESOURCE_CLAIMS
from cpg_client.timing import Timing
from cpg_scheduler.testing.fake_connection import FakeConnection, SentRequest
from cpg_scheduler.testing.stage import Stage

Plain = dict[str, Any]


class ClaimServer(FakeConnection):
    """The claims of a stage, as an API server has them; its watch shows every write at once, unless ``is_silent``.

    ``error`` fails a request before it has an effect, ``lost`` after it.
    """

    def __init__(self, stage: Stage, timing: Timing) -> None:
        """Start without claims."""
        super().__init__(timing)
        self.stage = stage
        self.is_silent = False
        self.slow: dict[str, asyncio.Event] = {}
        """The paths of slow writes, with what they wait for."""
        self.lost: list[Exception] = []
        self.keeps_status = True
        """Whether the status of a pod keeps the claim for its extended resources."""
        self._version = 10

    def claim(self, name: str) -> ResourceClaim:
        """Return a claim as it is now."""
        return msgspec.convert(self.objects[_path(name)], ResourceClaim)

    def put(self, name: str, **parts: Any) -> None:
        """Create a claim, or change some of its parts as another client does."""
        known = cast("Plain", self.objects.get(_path(name), {"metadata": {"name": name, "namespace": "default"}}))
        meta = {"uid": f"uid-{name}", **known["metadata"], **parts.pop("metadata", {})}
        self._store(_path(name), {**known, **parts, "metadata": meta})

    def delete_claim(self, name: str) -> None:
        """Delete a claim."""
        found = self.claim(name)
        del self.objects[_path(name)]
        self.stage.delete(found)

    def show(self, name: str) -> None:
        """Let the watch show a claim as it is now."""
        self.stage.put(self.claim(name))

    async def patch(self, path: str, body: object, content_type: str = "", *, params: object = None) -> bytes:
        """Merge a patch into a claim of the version that it names."""
        answer = await super().patch(path, body, content_type, params=params)
        if path in self.slow:
            await self.slow[path].wait()
        if path.startswith(PODS.path("default")) and path.endswith("/status") and self.keeps_status:
            found = cast("Plain", self.objects[path.removesuffix("/status")])
            found["status"] = {**found.get("status", {}), **cast("Plain", body)["status"]}
            return msgspec.json.encode(found)
        if not path.startswith(RESOURCE_CLAIMS.path("default")):
            return answer
        place, patch = path.removesuffix("/status"), cast("Plain", body)
        if place not in self.objects:
            raise ApiError(404, "NotFound", path)
        found = copy.deepcopy(cast("Plain", self.objects[place]))
        if found["metadata"]["resourceVersion"] != patch["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", path)
        if content_type == MERGE_PATCH:
            found["metadata"]["finalizers"] = patch["metadata"]["finalizers"] or []
        else:
            _merge(found, patch)
        self._store(place, found)
        if self.lost:
            raise self.lost.pop(0)
        return msgspec.json.encode(found)

    async def post(self, path: str, body: object, params: object = None) -> bytes:
        """Create a claim, unless there is one of the name."""
        answer = await super().post(path, body, params)
        if path != RESOURCE_CLAIMS.path("default"):
            return answer
        if path in self.slow:
            await self.slow[path].wait()
        name = cast("Plain", body)["metadata"]["name"]
        if _path(name) in self.objects:
            raise ApiError(409, "AlreadyExists", path)
        self.put(name, **copy.deepcopy(cast("Plain", body)))
        if self.lost:
            raise self.lost.pop(0)
        return msgspec.json.encode(self.objects[_path(name)])

    async def delete(self, path: str, body: object = None, params: object = None) -> bytes:
        """Delete a claim, which has no finalizer by then."""
        answer = await super().delete(path, body, params)
        found = self.objects.get(path)
        if found is None:
            raise ApiError(404, "NotFound", path)
        if cast("Plain", found)["metadata"].get("finalizers"):
            raise ApiError(422, "Invalid", "a claim with a finalizer stays")
        self.delete_claim(path.rpartition("/")[2])
        return answer

    def changes(self) -> list[SentRequest]:
        """Return the writes to claims."""
        return [write for write in self.writes if "/resourceclaims/" in write.path]

    def _store(self, path: str, found: Plain) -> None:
        self._version += 1
        found["metadata"]["resourceVersion"] = str(self._version)
        self.objects[path] = found
        if not self.is_silent:
            self.show(found["metadata"]["name"])


def _path(name: str) -> str:
    return RESOURCE_CLAIMS.path("default", name)


def _merge(found: Plain, patch: Plain) -> None:
    meta = found["metadata"]
    meta["finalizers"] = sorted({*meta.get("finalizers", ()), *patch["metadata"].get("finalizers", ())})
    status = found.setdefault("status", {})
    for field, value in patch.get("status", {}).items():
        if value is None:
            status.pop(field, None)
        elif field == "reservedFor":
            removed = {one["uid"] for one in value if "$patch" in one}
            users = {one["uid"]: one for one in (*status.get(field, ()), *value) if one["uid"] not in removed}
            status[field] = list(users.values())
        else:
            status[field] = value
