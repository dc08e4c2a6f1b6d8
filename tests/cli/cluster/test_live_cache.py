"""Watches that end, fail and are refused leave a cache that is up to date."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_cli.cluster import following
from cpg_cli.cluster.api_server import ApiServer, ApiServerError
from cpg_cli.cluster.live_cache import LiveCache
from cpg_cli.options import ClusterOptions
from cpg_client.resources import Resource

GROUPS = "/apis/scheduling.cpg.dev/v1alpha3"
POD_GROUPS = f"{GROUPS}/namespaces/default/podgroups"
ALL_PODS = "/api/v1/namespaces/default/pods"
TRAIN = GroupKey("PodGroup", "default", "train")


def group(name: str, version: int) -> dict[str, Any]:
    """Return a PodGroup."""
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": str(version)}
    return {"metadata": meta, "spec": {"schedulingPolicy": {"gang": {"minCount": version}}}}


def listed(version: int, *items: dict[str, Any]) -> dict[str, Any]:
    """Return a page of a list."""
    return {"metadata": {"resourceVersion": str(version)}, "items": items}


CUT = {"type": "cut"}
"""Stands for a line that ends too early."""


class WatchedServer(ApiServer):
    """Answers lists and watches of PodGroups from a script; pods may not be read."""

    def __init__(self, *script: object) -> None:
        """Answer in this order; at the end the watches stay open."""
        super().__init__(ClusterOptions(namespace="default"))
        self.since: list[str] = []
        self._script = list(script)

    def get(self, path: str, params: Mapping[str, str | int] | None = None) -> bytes:
        """Return a list."""
        del params
        if path == GROUPS:
            return json.dumps({"resources": [{"name": "podgroups"}]}).encode()
        if path == ALL_PODS:
            raise ApiServerError("no pods", status=403)
        if path != POD_GROUPS:
            raise ApiServerError(path, status=404)
        answer = self._script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return json.dumps(answer).encode()

    def watch(
        self, resource: Resource, namespace: str | None = None, *, since: str, seconds: int, **selectors: str
    ) -> Iterator[bytes]:
        """Yield the next events."""
        del resource, namespace, seconds, selectors
        self.since.append(since)
        while not self._script:
            time.sleep(60)
        events = self._script.pop(0)
        assert isinstance(events, list)
        for event in events:
            if isinstance(event, Exception):
                raise event
            if event == CUT:
                yield b'{"type": "ADDED", "obj'
            yield json.dumps(event).encode()


def event(kind: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return a line of a watch."""
    return {"type": kind, "object": found}


def settled(server: WatchedServer, watches: int) -> LiveCache:
    """Return the cache after so many watches have begun."""
    live = LiveCache(server, "default")
    deadline = time.monotonic() + 10
    while len(server.since) < watches or not live.is_complete:
        assert time.monotonic() < deadline, server.since
        live.refresh(0.05)
    live.refresh(0.05)
    return live


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again at once."""
    monkeypatch.setattr(following, "SECONDS_BETWEEN_TRIES", 0.01)


def minimum(live: LiveCache) -> int | None:
    """Return the minimum of the group, or None if it does not exist."""
    found = live.cache.stores["crd"].forest.groups.get(TRAIN)
    return found.minimum if found is not None else None


def test_a_watch_that_ends_goes_on_where_it_ended() -> None:
    """By the version of the last object or bookmark."""
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})
    server = WatchedServer(
        listed(3), [event("ADDED", group("train", 4))], [event("MODIFIED", group("train", 5)), bookmark]
    )
    live = settled(server, 3)
    assert (server.since, minimum(live)) == (["3", "4", "9"], 5)


def test_after_an_expired_version_everything_is_listed_again() -> None:
    """What is not in the new list was deleted meanwhile."""
    expired = event("ERROR", {"code": 410})
    server = WatchedServer(listed(3, group("train", 2), group("other", 1)), [expired], listed(8, group("other", 7)))
    live = settled(server, 2)
    assert (server.since, minimum(live)) == (["3", "8"], None)
    assert len(list(live.cache.stores["crd"])) == 1


def test_a_deleted_object_is_gone_and_a_malformed_one_is_passed_over() -> None:
    """The others are seen."""
    bad = {"metadata": {"name": "bad", "namespace": "default", "uid": "bad"}, "spec": "nonsense"}
    server = WatchedServer(listed(3, bad, group("train", 2)), [event("DELETED", group("train", 4))])
    live = settled(server, 2)
    assert minimum(live) is None


def test_a_connection_that_breaks_is_opened_again() -> None:
    """At the list and at the watch."""
    broken = ApiServerError("reset")
    server = WatchedServer(
        broken, listed(3), [event("ADDED", group("train", 4)), broken], listed(5), [CUT], listed(6, group("train", 6))
    )
    live = settled(server, 3)
    assert (server.since, minimum(live)) == (["3", "5", "6"], 6)


def test_what_may_not_be_read_is_named() -> None:
    """The cache is complete without it."""
    live = settled(WatchedServer(listed(3)), 1)
    assert live.unread == {"Pods": "no pods"}
