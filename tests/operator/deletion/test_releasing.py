"""The way out: finalizers come off whatever else happens."""

from http import HTTPStatus
from typing import Any, cast

import msgspec
import pytest

from cpg_api.scheduling.names import FINALIZER
from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, Resource
from cpg_client.timing import Timing
from cpg_operator.deletion.releasing import StillHeldError, release_finalizers

HOLD = "example.com/hold"
SERVED = (CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS)


class Server:
    """Groups by their path with their finalizers; time passes only by waiting."""

    def __init__(self, groups: dict[str, list[str]], *, stubborn: bool = False) -> None:
        """Hold these groups; a stubborn server has an operator that puts every finalizer back."""
        self.groups = groups
        self.now = 0.0
        self.conflicts: set[str] = set()
        self.timing = Timing(sleep=self._sleep, clock=lambda: self.now)
        self._stubborn = stubborn

    async def get(self, path: str, params: object = None) -> bytes:
        """Answer discovery and lists."""
        del params
        if path.endswith("/scheduling.cpg.dev/v1alpha3"):
            served = [{"name": one.plural, "kind": one.kind, "namespaced": True} for one in SERVED]
            return msgspec.json.encode({"resources": served})
        if "k8s.io" in path:
            raise ApiError(HTTPStatus.NOT_FOUND, "NotFound", "not served")
        items = [_item(place, names) for place, names in self.groups.items() if _listed(place, path)]
        return msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items})

    async def patch(self, path: str, body: Any, content_type: str, *, params: object = None) -> bytes:  # noqa: ANN401
        """Take a list of finalizers, unless somebody was faster."""
        del content_type, params
        assert body["metadata"]["uid"] == path
        if path in self.conflicts:
            self.conflicts.remove(path)
            raise ApiError(HTTPStatus.CONFLICT, "Conflict", "the object has been modified")
        if not self._stubborn:
            self.groups[path] = body["metadata"]["finalizers"]
        return b"{}"

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds


def _item(place: str, finalizers: list[str]) -> dict[str, Any]:
    namespace, name = place.split("/")[-3], place.rsplit("/", maxsplit=1)[-1]
    return {"metadata": {"name": name, "namespace": namespace, "uid": place, "finalizers": finalizers}}


def _listed(place: str, collection: str) -> bool:
    group, _, kind = collection.rpartition("/")
    return place.startswith(group) and f"/{kind}/" in place


def where(resource: Resource, namespace: str, name: str) -> str:
    """Return the path of a group."""
    return resource.path(namespace, name)


def connected(server: Server) -> Connection:
    """Return the server as what it stands for."""
    return cast("Connection", server)


async def test_ours_comes_off_every_group_and_others_stay() -> None:
    """Of both kinds, in all namespaces; what changed meanwhile is taken in the next pass."""
    leaf, root, free = (
        where(CPG_POD_GROUPS, "a", "leaf"),
        where(CPG_COMPOSITE_POD_GROUPS, "b", "root"),
        where(CPG_POD_GROUPS, "a", "free"),
    )
    server = Server({leaf: [FINALIZER], root: [HOLD, FINALIZER], free: [HOLD]})
    server.conflicts.add(leaf)
    await release_finalizers(connected(server))
    assert server.groups == {leaf: [], root: [HOLD], free: [HOLD]}


async def test_only_the_namespaces_that_are_named() -> None:
    """Whoever may not see the whole cluster can still clear up what is theirs."""
    mine, other = where(CPG_POD_GROUPS, "a", "x"), where(CPG_POD_GROUPS, "b", "x")
    server = Server({mine: [FINALIZER], other: [FINALIZER]})
    await release_finalizers(connected(server), ["a"])
    assert server.groups == {mine: [], other: [FINALIZER]}


async def test_an_operator_that_still_runs_is_told_of() -> None:
    """It puts them back for ever; that is an error, not success."""
    server = Server({where(CPG_POD_GROUPS, "a", "x"): [FINALIZER]}, stubborn=True)
    with pytest.raises(StillHeldError, match="stop the operator first"):
        await release_finalizers(connected(server), patience=5.0)
    assert server.now > 5.0
