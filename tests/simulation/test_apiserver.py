"""The simulated API server: what its tests against a real one (``e2e/simulation``) cannot reach."""

import itertools
from typing import Any

import msgspec
import pytest

from cpg_client.connection import APPLY_YAML, MERGE_PATCH, STRATEGIC_MERGE_PATCH
from cpg_client.resources import CPG_POD_GROUPS, LEASES, NAMESPACES, PODS, Resource
from cpg_simulation.apiserver.kinds import Kind
from cpg_simulation.apiserver.server import ApiServer
from cpg_simulation.apiserver.values import Answer, Object, Request
from cpg_simulation.apiserver.watches import Watch

NOW = 1_800_000_000.0
POD: Object = {"spec": {"containers": [{"name": "main", "image": "one"}]}}
GROUP: Object = {
    "apiVersion": CPG_POD_GROUPS.api_version,
    "kind": CPG_POD_GROUPS.kind,
    "metadata": {"name": "gang"},
    "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
}


class Client:
    """Sends requests to a new server."""

    def __init__(self) -> None:
        """Start the server."""
        numbers = itertools.count()
        self.server = ApiServer(now=lambda: NOW, new_uid=lambda: f"uid-{next(numbers)}")

    def send(
        self, method: str, path: str, body: object = None, content_type: str = "application/json", **query: str
    ) -> tuple[int, Any]:
        """Return the status code and the answer."""
        data = b"" if body is None else msgspec.json.encode(body)
        request = Request(method=method, path=path, query=query, body=data, content_type=content_type, user="tester")
        answer = self.server.handle(request)
        assert isinstance(answer, Answer)
        return answer.status, msgspec.json.decode(answer.body)

    def watch(self, resource: Resource, **query: str) -> Watch:
        """Return a watch."""
        request = Request(method="GET", path=resource.path(), query={"watch": "true", **query})
        watch = self.server.handle(request)
        assert isinstance(watch, Watch)
        return watch

    def create_pod(self, name: str, **metadata: Any) -> Any:  # noqa: ANN401  # any metadata
        """Create a pod."""
        code, pod = self.send("POST", PODS.path("default"), POD | {"metadata": {"name": name, **metadata}})
        assert code == 201
        return pod

    def label(self, name: str, value: str) -> Any:  # noqa: ANN401  # a JSON object
        """Change a label of a pod."""
        body = {"metadata": {"labels": {"color": value}}}
        return self.send("PATCH", PODS.path("default", name), body, MERGE_PATCH)[1]


@pytest.fixture
def client() -> Client:
    """Return a client of a new server."""
    return Client()


def events(watch: Watch, limit: int = 1000) -> list[tuple[str, str]]:
    """Return the type and the name of each event that is ready."""
    found = [msgspec.json.decode(line) for line in watch.take(limit)]
    return [(one["type"], one["object"]["metadata"].get("name", "")) for one in found]


def test_a_watch_shows_each_change_once(client: Client) -> None:
    """Changes wait until the reader takes them."""
    watch = client.watch(PODS, resourceVersion=str(client.server.revision))
    client.create_pod("a")
    client.label("a", "red")
    client.label("a", "red")
    assert events(watch, 1) == [("ADDED", "a")]
    client.send("DELETE", PODS.path("default", "a"))
    assert events(watch) == [("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert events(watch) == []


def test_a_watch_without_a_version_starts_with_all_objects(client: Client) -> None:
    """Later changes follow."""
    client.create_pod("b")
    client.create_pod("a")
    watch = client.watch(PODS)
    client.label("b", "red")
    assert events(watch) == [("ADDED", "a"), ("ADDED", "b"), ("MODIFIED", "b")]


def test_a_bookmark_has_the_version_of_what_was_taken(client: Client) -> None:
    """A reader that resumes after it misses nothing."""
    watch = client.watch(PODS, resourceVersion=str(client.server.revision))
    versions = [client.create_pod("a")["metadata"]["resourceVersion"]]
    client.create_pod("b")
    watch.take(1)
    assert msgspec.json.decode(watch.bookmark())["object"]["metadata"]["resourceVersion"] == versions[0]
    watch.take(1)
    client.send("POST", NAMESPACES.path(), {"metadata": {"name": "later"}})
    found = msgspec.json.decode(watch.bookmark())
    assert (found["type"], found["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", str(client.server.revision))


def test_a_compacted_version_has_expired(client: Client) -> None:
    """A new watch gets an error, and a page of an old snapshot is refused; an open watch loses nothing."""
    before = str(client.server.revision)
    opened = client.watch(PODS, resourceVersion=before)
    for name in "abc":
        client.create_pod(name)
    page = client.send("GET", PODS.path(), limit="1")[1]
    client.create_pod("d")
    following = client.send("GET", PODS.path(), **{"limit": "5", "continue": page["metadata"]["continue"]})[1]
    assert [one["metadata"]["name"] for one in following["items"]] == ["b", "c"]
    client.server.compact(client.server.revision)
    refused = client.watch(PODS, resourceVersion=before)
    (line,) = refused.take(10)
    assert msgspec.json.decode(line)["object"]["code"] == 410
    assert refused.is_ended
    assert client.send("GET", PODS.path(), **{"limit": "5", "continue": page["metadata"]["continue"]})[0] == 410
    assert [name for _, name in events(opened)] == ["a", "b", "c", "d"]


def test_a_restart_ends_all_watches(client: Client) -> None:
    """Without history, none resumes at an older version."""
    before = str(client.server.revision)
    watch = client.watch(PODS, resourceVersion=before)
    client.create_pod("a")
    client.server.restart()
    assert watch.is_ended
    assert events(watch) == []
    assert events(client.watch(PODS, resourceVersion=before)) == [("ADDED", "a")]
    client.server.restart(keeps_history=False)
    assert client.watch(PODS, resourceVersion=before).is_ended


def test_a_restored_backup_brings_old_versions_again(client: Client) -> None:
    """A watch at a version of the future is silent until there is a later one, as with a watch cache."""
    client.create_pod("a")
    state = client.server.save()
    lost = client.create_pod("b")["metadata"]["resourceVersion"]
    client.create_pod("c")
    client.server.restore(state)
    assert client.send("GET", PODS.path("default", "b"))[0] == 404
    assert client.send("GET", PODS.path(), resourceVersion=lost)[0] == 504
    watch = client.watch(PODS, resourceVersion=lost)
    assert client.create_pod("d")["metadata"]["resourceVersion"] == lost
    client.create_pod("e")
    assert events(watch) == [("ADDED", "e")]


def test_the_journal_has_every_change(client: Client) -> None:
    """It has whole objects, and none is changed later."""
    client.create_pod("a")
    seen = [*client.server.journal]
    heard: list[str] = []
    client.server.on_write.append(lambda write: heard.append(write.verb))
    body = {"target": {"name": "node"}, "metadata": {"name": "a"}}
    client.send("POST", PODS.path("default", "a", "binding"), body)
    client.send("DELETE", PODS.path("default", "a"), {"gracePeriodSeconds": 0})
    assert heard == ["bind", "delete", "delete"]
    bind, marked, gone = client.server.journal[len(seen) :]
    assert (bind.old or {})["spec"].get("nodeName") is None
    assert (bind.new or {})["spec"]["nodeName"] == "node"
    assert (marked.new or {})["metadata"]["deletionGracePeriodSeconds"] == 0
    assert gone.new is None
    assert [write.revision for write in client.server.journal] == sorted(
        {write.revision for write in client.server.journal}
    )


def test_a_refusal_of_a_test_changes_nothing(client: Client) -> None:
    """It sees the object as it would be."""
    client.create_pod("a")
    client.server.refuse = lambda _, __, new: Answer(403, b"{}") if new and "labels" in new["metadata"] else None
    before = client.server.revision
    body = {"metadata": {"labels": {"color": "red"}}}
    assert client.send("PATCH", PODS.path("default", "a"), body, MERGE_PATCH) == (403, {})
    assert client.server.revision == before
    assert client.send("DELETE", PODS.path("default", "a"))[0] == 200


def test_a_nominated_pod_shows_its_managers(client: Client) -> None:
    """The scheduler reads there which component has nominated a pod; others have no managed fields."""
    client.create_pod("a")
    body = {"status": {"nominatedNodeName": "node"}}
    path = PODS.path("default", "a", "status")
    found = client.send("PATCH", path, body, STRATEGIC_MERGE_PATCH, fieldManager="autoscaler")[1]
    managers = {one["manager"]: one["fieldsV1"] for one in found["metadata"]["managedFields"]}
    assert managers["autoscaler"] == {"f:status": {"f:nominatedNodeName": {}}}
    assert set(managers) == {"autoscaler", "tester"}
    found = client.send("PATCH", path, {"status": {"nominatedNodeName": None}}, STRATEGIC_MERGE_PATCH)[1]
    assert "managedFields" not in found["metadata"]


def test_a_status_of_a_custom_resource_has_no_precondition_by_uid(client: Client) -> None:
    """As in Kubernetes: metadata of such a write is ignored, except its version."""
    client.send("POST", CPG_POD_GROUPS.path("default"), GROUP)
    path = CPG_POD_GROUPS.path("default", "gang", "status")
    body = {**GROUP, "metadata": {"uid": "another"}, "status": {"conditions": []}}
    assert client.send("PATCH", path, body, APPLY_YAML, fieldManager="tester")[0] == 200
    assert client.send("PATCH", path, {"metadata": {"resourceVersion": "1"}}, MERGE_PATCH)[0] == 409


def test_a_namespace_that_ends_takes_nothing_new(client: Client) -> None:
    """Its finalizer is taken by the one that has emptied it."""
    client.send("POST", NAMESPACES.path(), {"metadata": {"name": "team"}})
    client.send("DELETE", NAMESPACES.path(name="team"))
    code, refusal = client.send("POST", PODS.path("team"), POD | {"metadata": {"name": "late"}})
    assert (code, refusal["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert client.send("GET", NAMESPACES.path(name="team"))[1]["status"]["phase"] == "Terminating"
    client.send("PUT", f"{NAMESPACES.path(name='team')}/finalize", {"spec": {"finalizers": []}})
    assert client.send("GET", NAMESPACES.path(name="team"))[0] == 404


def test_further_kinds_are_served() -> None:
    """Owners of pods, such as Jobs."""
    jobs = Kind(resource=Resource("batch", "v1", "jobs", "Job"), has_status=True, has_generation=True)
    server = ApiServer(now=lambda: NOW, new_uid=lambda: "uid", further=[jobs])
    body = msgspec.json.encode({"metadata": {"name": "job"}, "spec": {"parallelism": 2}})
    answer = server.handle(Request(method="POST", path=jobs.resource.path("default"), body=body))
    assert isinstance(answer, Answer)
    assert answer.status == 201
    assert (server.get("jobs.batch", "default", "job") or {})["metadata"]["generation"] == 1


def test_generated_names_follow_from_uids(client: Client) -> None:
    """Two servers with the same requests have the same names."""
    names = [
        one.send("POST", PODS.path("default"), POD | {"metadata": {"generateName": "pod-"}})[1]["metadata"]["name"]
        for one in (client, client, Client())
    ]
    assert names[0] == names[2] != names[1]
    assert all(len(name) == len("pod-") + 5 for name in names)


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/apis/example.com/v1/things", 404),
        ("GET", "/api/v1/namespaces/default/things", 404),
        ("GET", f"{PODS.path('default', 'a')}/log", 404),
        ("POST", LEASES.path("default", "a"), 405),
        ("POST", PODS.path("default"), 400),
        ("GET", "/readyz", 200),
    ],
)
def test_paths_and_bodies_are_checked(client: Client, method: str, path: str, code: int) -> None:
    """A body that is no JSON is a bad request."""
    answer = client.server.handle(Request(method=method, path=path, body=b"{"))
    assert isinstance(answer, Answer)
    assert answer.status == code
