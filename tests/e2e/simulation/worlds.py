"""A real and a simulated API server behind one interface."""

import http.client
import itertools
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec
from tests.e2e.simulation.request_cases import Step

from cpg_client.resources import Resource
from cpg_lab.access import Access
from cpg_simulation.apiserver.patches import merge
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.values import Answer, Request

Plain = dict[str, Any]
AGENT = "comparison"


class World(ABC):
    """One API server, and what it has answered about the objects of a sequence."""

    def __init__(self, namespace: str) -> None:
        """Know nothing yet."""
        self.namespace = namespace
        self._seen: dict[tuple[Resource, str], list[Plain]] = {}

    @abstractmethod
    def request(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, content_type: str
    ) -> tuple[int, Plain]:
        """Send a request; return the status code and the answer."""

    @abstractmethod
    def watch(self, path: str, query: Mapping[str, str]) -> Sequence[Plain]:
        """Return the events up to the one of the object ``sentinel``."""

    def send(self, step: Step) -> tuple[int, Plain]:
        """Send a step."""
        path = step.resource.path(self.namespace, step.name or None, step.subresource)
        body = self._body(step)
        data = b"" if body is None else msgspec.json.encode(body)
        return self.request(step.method, path, step.query, data, step.content_type)

    def look(self, resource: Resource, name: str) -> tuple[int, Plain]:
        """Return an object, and remember it."""
        code, found = self.request("GET", resource.path(self.namespace, name), {}, b"", "application/json")
        seen = self._seen.setdefault((resource, name), [])
        if code == 200:
            if seen and seen[-1]["metadata"]["uid"] != found["metadata"]["uid"]:
                seen.clear()
            seen.append(found)
        return code, found

    def is_changed(self, resource: Resource, name: str) -> bool:
        """Return whether the last look has shown another version than the one before."""
        versions = [one["metadata"]["resourceVersion"] for one in self._seen[resource, name][-2:]]
        return len(set(versions)) > 1

    def _body(self, step: Step) -> Any:  # noqa: ANN401  # JSON values
        """Return the body of a step with the UID and the version that it asks for."""
        if not isinstance(step.body, dict):
            return step.body
        seen = self._seen.get((step.resource, step.name)) or [{"metadata": {"uid": "none", "resourceVersion": "1"}}]
        own = {}
        if step.uid:
            own["uid"] = seen[-1]["metadata"]["uid"] if step.uid == "right" else "another"
        if step.version:
            own["resourceVersion"] = seen[-1 if step.version == "right" else 0]["metadata"]["resourceVersion"]
        if step.method == "DELETE":
            return {**step.body, "preconditions": own} if own else step.body
        if not step.replaces:
            return {**step.body, "metadata": {**step.body.get("metadata", {}), **own}}
        base = {name: part for name, part in seen[-1].items() if name in step.body or name in ("apiVersion", "kind")}
        base = {**base, "spec": seen[-1].get("spec", {})}
        metadata = {name: part for name, part in base["metadata"].items() if name != "resourceVersion"}
        return merge(merge({**base, "metadata": metadata}, step.body), {"metadata": own})


class RealWorld(World):
    """An API server of the lab."""

    def __init__(self, access: Access, namespace: str) -> None:
        """Connect with the first request."""
        super().__init__(namespace)
        self._access = access
        self._context = ssl.create_default_context(cafile=access.ca_file)
        self._connection = self._connect()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def request(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, content_type: str
    ) -> tuple[int, Plain]:
        """Send a request; return the status code and the answer."""
        self._connection.request(method, f"{path}?{urlencode(query)}", body or None, self._headers(content_type))
        answer = self._connection.getresponse()
        return answer.status, msgspec.json.decode(answer.read())

    def watch(self, path: str, query: Mapping[str, str]) -> Sequence[Plain]:
        """Return the events up to the one of the object ``sentinel``."""
        connection = self._connect()
        try:
            connection.request("GET", f"{path}?{urlencode(query)}", None, self._headers("application/json"))
            return until_sentinel(connection.getresponse().readline)
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(urlsplit(self._access.url).netloc, context=self._context, timeout=10)

    def _headers(self, content_type: str) -> dict[str, str]:
        authorization = f"Bearer {self._access.token}"
        return {"Authorization": authorization, "Content-Type": content_type, "User-Agent": f"{AGENT}/1"}


class SimulatedWorld(World):
    """The simulated API server."""

    def __init__(self, namespace: str) -> None:
        """Start a server."""
        super().__init__(namespace)
        numbers = itertools.count()
        self.server = ApiServer(now=lambda: 1.8e9, new_uid=lambda: f"uid-{next(numbers)}", native=True)

    def request(
        self, method: str, path: str, query: Mapping[str, str], body: bytes, content_type: str
    ) -> tuple[int, Plain]:
        """Send a request; return the status code and the answer."""
        answer = self.server.handle(
            Request(method=method, path=path, query=query, body=body, content_type=content_type, manager=AGENT)
        )
        assert isinstance(answer, Answer)
        return answer.status, msgspec.json.decode(answer.body)

    def watch(self, path: str, query: Mapping[str, str]) -> Sequence[Plain]:
        """Return the events up to the one of the object ``sentinel``."""
        watch = self.server.handle(Request(method="GET", path=path, query=query))
        assert not isinstance(watch, Answer)
        return until_sentinel(lambda: b"".join(watch.take(1)))


def until_sentinel(read: Any) -> list[Plain]:  # noqa: ANN401  # a function that returns a line
    """Return events up to the one of the object ``sentinel``."""
    events: list[Plain] = []
    while not events or events[-1]["object"]["metadata"].get("name") != "sentinel":
        line = read()
        assert line, events
        events.append(msgspec.json.decode(line))
    return events
