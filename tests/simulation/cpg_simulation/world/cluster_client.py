"""What the world asks of the API server: it is next to it, so its requests take no time and none is lost."""

import json
from collections.abc import Iterator

from cpg_client.resources import PODS, Resource
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.values import Answer, Request
from cpg_simulation.nights.manifests import NAMESPACE, TREE_LABEL, Manifest


class ClusterClient:
    """Sends requests, and reads objects as they are."""

    def __init__(self, server: ApiServer) -> None:
        """Send nothing yet."""
        self.is_down = False
        """Whether the API server cannot be reached."""
        self._server = server

    def create(self, resource: Resource, manifest: Manifest, user: str = "user") -> bool:
        """Create an object; return whether it was accepted."""
        namespace = manifest["metadata"].get("namespace") if resource.namespaced else None
        return self._call("POST", resource.path(namespace), manifest, user).status == 201

    def delete(self, resource: Resource, name: str, user: str = "user", grace: int | None = None) -> None:
        """Delete an object."""
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1"}
        if grace is not None:
            options["gracePeriodSeconds"] = grace
        self._call("DELETE", _path(resource, name), options, user)

    def merge(self, resource: Resource, name: str, body: Manifest, user: str = "user", subresource: str = "") -> bool:
        """Merge fields into an object; return whether it was accepted."""
        path = f"{_path(resource, name)}/{subresource}" if subresource else _path(resource, name)
        return self._call("PATCH", path, body, user, "application/merge-patch+json").status == 200

    def bind(self, pod: str, node: str, user: str) -> None:
        """Bind a pod."""
        body = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": node}}
        self._call("POST", f"{_path(PODS, pod)}/binding", body, user)

    def get(self, resource: Resource, name: str) -> Manifest | None:
        """Return an object, if it is there."""
        found: Manifest | None = self._server.get(key(resource), NAMESPACE if resource.namespaced else "", name)
        return found

    def objects(self, resource: Resource) -> list[Manifest]:
        """Return the objects of a kind, which may change meanwhile."""
        return list(self._server.objects(key(resource)))

    def pods(self, tree: str = "") -> Iterator[Manifest]:
        """Yield the pods, of one tree or of all."""
        for found in self.objects(PODS):
            if not tree or found["metadata"].get("labels", {}).get(TREE_LABEL) == tree:
                yield found

    def _call(
        self, method: str, path: str, body: Manifest, user: str, content_type: str = "application/json"
    ) -> Answer:
        if self.is_down:
            return Answer(503, b"{}")
        request = Request(
            method=method,
            path=path,
            query={},
            body=json.dumps(body).encode(),
            content_type=content_type,
            user=user,
            manager=user,
        )
        answer = self._server.handle(request)
        if not isinstance(answer, Answer):
            raise TypeError(f"no answer to {method} {path}")
        return answer


def name_of(found: Manifest) -> str:
    """Return the name of an object."""
    name: str = found["metadata"]["name"]
    return name


def key(resource: Resource) -> str:
    """Return the plural with its group, as the API server names a resource."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _path(resource: Resource, name: str) -> str:
    return resource.path(NAMESPACE if resource.namespaced else None, name)
