"""A small API server on loopback: it lists and watches groups, pods and nodes, and accepts writes.

It has a loop and a thread of its own, because Kopf cancels all tasks that were created during its run.
"""

import asyncio
import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any, TypeAlias

import pytest
from aiohttp import web

from cpg_client.endpoint import Endpoint
from cpg_client.flavours import CRD, KINDS
from cpg_client.resources import NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Resource
from cpg_lab.ports import LOOPBACK

PlainObject: TypeAlias = dict[str, Any]
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
SERVED = (*KINDS[CRD].values(), PODS, NODES, PRIORITY_CLASSES, NAMESPACES, DEFINITIONS)


class FakeApi:
    """Objects by the path of their collection, and one lease."""

    def __init__(self) -> None:
        """Serve the kinds of our flavour, without objects."""
        self.url = ""
        self.served = {resource.path(): resource for resource in SERVED}
        self.objects: dict[str, dict[str, PlainObject]] = {path: {} for path in self.served}
        self.requests: list[tuple[str, str]] = []
        self._watches: dict[asyncio.Queue[bytes], str] = {}
        self._history: list[tuple[int, str, bytes]] = []
        self._versions = itertools.count(1000)
        self._lease: PlainObject | None = None
        self._loop = asyncio.new_event_loop()
        self._runner: web.AppRunner | None = None

    def run(self, ready: threading.Event) -> None:
        """Serve until ``stop``."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        ready.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    def restore(self) -> None:
        """Count versions anew, as after the restore of a backup of etcd; no watch shows that."""
        self._versions = itertools.count(1)

    def stop(self) -> None:
        """End all watches and the server."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _serve(self) -> None:
        application = web.Application()
        application.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, LOOPBACK, 0).start()
        self.url = f"http://{LOOPBACK}:{self._runner.addresses[0][1]}"

    async def _end(self) -> None:
        for queue in self._watches:
            queue.put_nowait(b"")
        if self._runner is not None:
            await self._runner.cleanup()

    def create(self, resource: Resource, name: str, spec: PlainObject) -> None:
        """Create an object; the watches report it."""
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        self._loop.call_soon_threadsafe(self._put, resource.path(), {"metadata": metadata, "spec": spec}, "ADDED")

    def delete(self, resource: Resource, name: str) -> None:
        """Delete an object; the watches report it."""
        found = self.objects[resource.path()].pop(name)
        self._loop.call_soon_threadsafe(self._put, resource.path(), found, "DELETED")

    def send(self, resource: Resource, event: PlainObject) -> None:
        """Send an event to the watches of a resource."""
        for queue, path in self._watches.items():
            if path == resource.path():
                self._loop.call_soon_threadsafe(queue.put_nowait, json.dumps(event).encode() + b"\n")

    def _put(self, path: str, found: PlainObject, event: str) -> PlainObject:
        resource = self.served[path]
        found["metadata"]["resourceVersion"] = str(next(self._versions))
        found |= {"apiVersion": resource.api_version, "kind": resource.kind}
        if event != "DELETED":
            self.objects[path][found["metadata"]["name"]] = found
        line = json.dumps({"type": event, "object": found}).encode() + b"\n"
        self._history.append((int(found["metadata"]["resourceVersion"]), path, line))
        for queue, watched in self._watches.items():
            if watched == path:
                queue.put_nowait(line)
        return found

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path, method = request.path, request.method
        self.requests.append((method, path))
        if "/leases" in path:
            return await self._answer_lease(request)
        collection = _collection(path)
        if collection in self.served:
            watches = request.query.get("watch") == "true"
            return await self._watch(request, collection) if watches else self._list(collection)
        if method == "GET":
            return self._discover(path)
        return await self._write(request)

    def _list(self, path: str) -> web.Response:
        items, version = [*self.objects[path].values()], str(next(self._versions))
        return web.json_response({"metadata": {"resourceVersion": version}, "items": items})

    async def _watch(self, request: web.Request, collection: str) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        since = int(request.query.get("resourceVersion") or 0)
        for version, path, line in self._history:
            if path == collection and version > since:
                queue.put_nowait(line)
        self._watches[queue] = collection
        try:
            while line := await queue.get():
                await response.write(line)
        finally:
            del self._watches[queue]
        return response

    def _discover(self, path: str) -> web.Response:
        if path == "/apis":
            versions = {
                one.group: {"groupVersion": one.api_version, "version": one.version} for one in SERVED if one.group
            }
            groups = [
                {"name": group, "versions": [version], "preferredVersion": version}
                for group, version in versions.items()
            ]
            return web.json_response({"kind": "APIGroupList", "groups": groups})
        if path == "/api":
            return web.json_response({"kind": "APIVersions", "versions": ["v1"]})
        names = ("singularName", "shortNames", "verbs")
        found = [
            {"name": one.plural, "kind": one.kind, "namespaced": one.namespaced}
            | dict(zip(names, (one.kind.lower(), [], ["list", "watch", "patch"]), strict=True))
            for one in self.served.values()
            if path == (f"/apis/{one.group}/{one.version}" if one.group else f"/api/{one.version}")
        ]
        if not found:
            return web.json_response({"kind": "Status", "code": 404, "message": "not found"}, status=404)
        return web.json_response({"kind": "APIResourceList", "resources": found})

    async def _write(self, request: web.Request) -> web.Response:
        parts = request.path.strip("/").split("/")
        if "events" in parts or len(parts) < 7:
            return web.json_response({})
        path, name = "/" + "/".join((*parts[:3], parts[5])), parts[6]
        if name not in self.objects[path]:
            return web.json_response({"kind": "Status", "code": 404, "message": "not found"}, status=404)
        body, found = await request.json(), self.objects[path][name]
        body.get("metadata", {}).pop("resourceVersion", None)
        merged = {**found, **body, "metadata": {**found["metadata"], **body.get("metadata", {})}}
        return web.json_response(self._put(path, merged, "MODIFIED"))

    async def _answer_lease(self, request: web.Request) -> web.Response:
        if request.method != "GET":
            body = await request.json()
            current = (self._lease or {}).get("metadata", {}).get("resourceVersion")
            if body.get("metadata", {}).get("resourceVersion", current) != current:
                return web.json_response({"kind": "Status", "code": 409, "reason": "Conflict"}, status=409)
            self._lease = {**(self._lease or {}), **body}
            self._lease["metadata"] = {"name": "cpg-operator", "resourceVersion": str(next(self._versions))}
        if self._lease is None:
            return web.json_response({"kind": "Status", "code": 404, "message": "not found"}, status=404)
        return web.json_response(self._lease)

    @property
    def holder(self) -> str:
        """The holder of the lease."""
        return str((self._lease or {}).get("spec", {}).get("holderIdentity") or "")

    def hold_lease(self, holder: str) -> None:
        """Have another replica hold the lease."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
        self._lease = {"metadata": {"name": "cpg-operator", "resourceVersion": str(next(self._versions))}, "spec": spec}


def _collection(path: str) -> str:
    """Return the path of a collection in all namespaces."""
    parts = path.split("/")
    return path.replace("/namespaces/default/", "/") if len(parts) in {6, 7} else path


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """Run an API server."""
    api, ready = FakeApi(), threading.Event()
    thread = threading.Thread(target=api.run, args=(ready,), daemon=True)
    thread.start()
    ready.wait(10)
    yield api
    api.stop()
    thread.join(10)


@pytest.fixture
def endpoint(api: FakeApi) -> Endpoint:
    """Return where the API server is."""
    return Endpoint(server=api.url)
