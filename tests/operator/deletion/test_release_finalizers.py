"""The command that removes our finalizers, whatever else happens."""

from typing import Any, cast

import msgspec
import pykube  # type: ignore[import-untyped]  # it has no types
import pytest
import requests

from cpg_api.scheduling.names import FINALIZER
from cpg_client.resources import CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, Resource
from cpg_operator.deletion.release_finalizers import (
    FINALIZERS_COME_BACK,
    FREE_LEASE_SECONDS,
    LeaseName,
    NotReleasedError,
    release_finalizers,
)

LEASE = LeaseName("here", "cpg-operator")
HOLD = "example.com/hold"
SERVED = (CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS)
DEEP = b'{"f:a":' * 5000 + b"{}" + b"}" * 5000


class Server(requests.adapters.BaseAdapter):
    """Finalizers of groups by path, one group per page; time passes only by waiting."""

    def __init__(self, groups: dict[str, list[str]], *, stubborn: bool = False) -> None:
        """Hold these groups; ``stubborn`` stands for an operator that adds every finalizer again."""
        super().__init__()
        self.groups = groups
        self.now = 0.0
        self.answers: dict[str, list[int]] = {}
        self.holders: list[tuple[float, str]] = []
        """The holders of the lease, each with the time from which on it holds it; there is no lease without any."""
        self._stubborn = stubborn
        self.seconds = 0.0
        """The duration of a patch."""

    def send(self, request: requests.PreparedRequest, *_: object, **__: object) -> requests.Response:
        """Answer, or refuse once with a status."""
        path, _mark, query = str(request.url).removeprefix("http://server").partition("?")
        found = requests.Response()
        found.request = request
        found.status_code = self._status(path.rstrip("/"))
        if not found.status_code:
            raise requests.exceptions.ConnectionError("no route")
        answer: dict[str, Any] = {"kind": "Status", "message": f"status {found.status_code}"}
        if found.status_code == 200:
            answer = self._answer(request, path.rstrip("/"), query)
        found._content = msgspec.json.encode(answer).replace(b'"DEEP"', DEEP)
        found.headers["content-type"] = "application/json"
        return found

    def _status(self, path: str) -> int:
        if path.startswith("/apis/scheduling.k8s.io") or (path.endswith(LEASE.name) and not self.holders):
            return 404
        return self.answers[path].pop() if self.answers.get(path) else 200

    def close(self) -> None:
        """Do nothing."""

    def _answer(self, request: requests.PreparedRequest, path: str, query: str) -> dict[str, Any]:
        if path.endswith("/v1alpha3"):
            return {"resources": [{"name": one.plural, "kind": one.kind, "namespaced": True} for one in SERVED]}
        if path.endswith(LEASE.name):
            holder = [one for since, one in self.holders if since <= self.now][-1]
            renewed = {"holderIdentity": holder, "renewTime": str(self.now)} if holder not in {"", "dead"} else {}
            spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, **renewed}
            return {"metadata": {"managedFields": "DEEP"}, "spec": spec}
        if request.method == "PATCH":
            return self._patched(path, request)
        places = [place for place in self.groups if _listed(place, path)]
        at = int(query.partition("continue=")[2] or 0)
        more = {"continue": str(at + 1)} if at + 1 < len(places) else {}
        return {"metadata": more, "items": [_item(place, self.groups[place]) for place in places[at : at + 1]]}

    def _patched(self, path: str, request: requests.PreparedRequest) -> dict[str, Any]:
        body = msgspec.json.decode(cast("str", request.body))
        assert body["metadata"]["resourceVersion"] == "7"
        self.now += self.seconds
        if not self._stubborn:
            self.groups[path] = body["metadata"]["finalizers"]
        return _item(path, self.groups[path])

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


def _item(place: str, finalizers: list[str]) -> dict[str, Any]:
    namespace, name = place.split("/")[-3], place.rsplit("/", maxsplit=1)[-1]
    meta = {"name": name, "namespace": namespace, "resourceVersion": "7", "finalizers": finalizers}
    return {"metadata": {**meta, "managedFields": "DEEP" if name == "deep" else []}}


def _listed(place: str, collection: str) -> bool:
    group, _, kind = collection.rpartition("/")
    return place.startswith(group) and f"/{kind}/" in place


def where(resource: Resource, namespace: str, name: str) -> str:
    """Return the path of a group."""
    return resource.path(namespace, name)


def release(server: Server, *namespaces: str, patience: float = 60.0) -> None:
    """Release the groups of a server."""
    config = pykube.KubeConfig.from_url("http://server")
    client = pykube.HTTPClient(config, http_adapter=server)
    release_finalizers(client, namespaces, lease=LEASE, patience=patience, sleep=server.wait, clock=lambda: server.now)


@pytest.fixture
def mine() -> str:
    """Return the path of a group."""
    return where(CPG_POD_GROUPS, "a", "mine")


@pytest.mark.parametrize("status", [404, 409, 500, 0])
def test_our_finalizer_is_removed_from_every_group_and_others_stay(mine: str, status: int) -> None:
    """Of both kinds, in all namespaces; the next round takes a group that has changed or could not be reached."""
    root, free = where(CPG_COMPOSITE_POD_GROUPS, "b", "root"), where(CPG_POD_GROUPS, "a", "free")
    server = Server({mine: [FINALIZER], root: [HOLD, FINALIZER], free: [HOLD]})
    server.answers[mine] = [status]
    release(server)
    assert server.groups == {mine: [], root: [HOLD], free: [HOLD]}


def test_only_the_chosen_namespaces_are_released(mine: str) -> None:
    """Users without rights on the whole cluster can release their own namespaces."""
    other = where(CPG_POD_GROUPS, "b", "x")
    server = Server({mine: [FINALIZER], other: [FINALIZER]})
    release(server, "a")
    assert server.groups == {mine: [], other: [FINALIZER]}


def test_a_running_operator_is_an_error(mine: str) -> None:
    """It adds the finalizers again for ever."""
    server = Server({mine: [FINALIZER]}, stubborn=True)
    with pytest.raises(NotReleasedError, match="stop the operator first"):
        release(server, patience=5.0)
    assert server.now > 5.0


@pytest.mark.parametrize(("status", "words", "waited"), [(403, "status 403", 0.0), (500, "status 500", 5.0)])
def test_a_failure_is_reported(mine: str, status: int, words: str, waited: float) -> None:
    """At once where waiting cannot help, such as without the right."""
    server = Server({mine: [FINALIZER]})
    server.answers[CPG_POD_GROUPS.path()] = [status] * 99
    with pytest.raises(NotReleasedError, match=words):
        release(server, patience=5.0)
    assert server.now >= waited
    assert (server.now == 0.0) == (waited == 0.0)


@pytest.mark.parametrize(
    ("holders", "least"),
    [
        ([(0.0, "")], FREE_LEASE_SECONDS),
        ([(0.0, "dead")], 15 + FREE_LEASE_SECONDS),
        ([(0.0, "first"), (10.0, ""), (12.0, "second"), (20.0, "")], 20 + FREE_LEASE_SECONDS),
        ([(0.0, ""), (FREE_LEASE_SECONDS + 1, "second"), (20.0, "")], 20 + FREE_LEASE_SECONDS),
    ],
)
def test_the_lease_is_free_before_the_command_succeeds(
    mine: str, holders: list[tuple[float, str]], least: float
) -> None:
    """A standby has had time to take it, a killed leader has lost it, and a new leader starts the wait again."""
    server = Server({mine: [FINALIZER]})
    server.holders = holders
    release(server)
    assert server.groups == {mine: []}
    assert server.now >= least


def test_the_present_leader_is_named(mine: str) -> None:
    """And no finalizer is removed while it leads."""
    server = Server({mine: [FINALIZER]})
    server.holders = [(0.0, "replica-a")]
    with pytest.raises(NotReleasedError, match="replica-a holds the lease here/cpg-operator: stop the operator first"):
        release(server)
    assert server.groups == {mine: [FINALIZER]}


def test_a_deeply_nested_group_is_released_like_any_other(mine: str) -> None:
    """Neither its list nor the answer to its patch is decoded as a whole; nor is such a lease."""
    deep = where(CPG_POD_GROUPS, "b", "deep")
    server = Server({deep: [HOLD, FINALIZER], mine: [FINALIZER]})
    server.holders = [(0.0, "")]
    release(server)
    assert server.groups == {deep: [HOLD], mine: []}


@pytest.mark.parametrize("status", [403, 422, 500])
def test_an_error_of_one_group_stops_no_other_and_is_reported(mine: str, status: int) -> None:
    """Such as a policy that refuses it for ever; the others of its page, its kind and the other kind are released."""
    after, root = where(CPG_POD_GROUPS, "a", "other"), where(CPG_COMPOSITE_POD_GROUPS, "b", "root")
    server = Server({mine: [FINALIZER], after: [FINALIZER], root: [FINALIZER]})
    server.answers[mine] = [status] * 999
    with pytest.raises(NotReleasedError, match=rf"^PodGroup a/mine: HTTPError: status {status}$"):
        release(server, patience=5.0)
    assert server.groups == {mine: [FINALIZER], after: [], root: []}
    assert (server.now < 5.0) == (status == 403)


def test_a_kind_that_cannot_be_listed_stops_no_other(mine: str) -> None:
    """The error names it."""
    root = where(CPG_COMPOSITE_POD_GROUPS, "b", "root")
    server = Server({mine: [FINALIZER], root: [FINALIZER]})
    server.answers[CPG_POD_GROUPS.path()] = [403] * 999
    with pytest.raises(NotReleasedError, match=f"^{CPG_POD_GROUPS.path()}: HTTPError: status 403$"):
        release(server)
    assert server.groups == {mine: [FINALIZER], root: []}


def test_a_group_that_cannot_be_decoded_is_reported() -> None:
    """It may not have been released; of many errors some are spelled out."""
    odd = [where(CPG_POD_GROUPS, "a", f"odd{number}") for number in range(7)]
    server = Server({place: cast("list[str]", 7) for place in odd})
    with pytest.raises(NotReleasedError, match=r"PodGroup a/odd0: ValueError: .*finalizers.*; and 2 more$"):
        release(server, patience=5.0)


def test_a_long_release_has_time_while_it_makes_progress() -> None:
    """The time limit counts from the last group that was released."""
    many = {where(CPG_POD_GROUPS, "a", f"g{number}"): [FINALIZER] for number in range(9)}
    server = Server(dict(many))
    server.seconds = 2.0
    slow = next(iter(many))
    server.answers[slow] = [409] * 3
    release(server, patience=5.0)
    assert set(map(len, server.groups.values())) == {0}
    server = Server(dict(many), stubborn=True)
    server.seconds = 2.0
    with pytest.raises(NotReleasedError) as caught:
        release(server, patience=5.0)
    assert str(caught.value) == FINALIZERS_COME_BACK
