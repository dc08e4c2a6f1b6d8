"""How events and lists become changes."""

from collections.abc import Iterable

import msgspec
import pytest
from msgspec import Raw

from cpg_api.core.pod import Pod
from cpg_api.parsing import Rejected
from cpg_api.problems import Problem
from cpg_api.structs import ApiStruct
from cpg_client.stores import Added, Change, Deleted, Modified, ObjectStore, Rejection, keep_whole
from cpg_client.watching import EventType, WatchEvent


def pod(name: str, version: int, *, uid: str = "u", node: object = "", namespace: str = "ns") -> Raw:
    """Build a pod's bytes."""
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version)}
    return Raw(msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": node}}))


def event(kind: EventType, raw: Raw) -> WatchEvent:
    """Build an event; a store does not look at the version in it."""
    return WatchEvent(kind, "", raw)


def node_of(pod: Pod) -> str | Rejected:
    """Keep a pod's node, and reject one on the moon."""
    if pod.spec.node_name == "moon":
        return Rejected(pod.metadata.key, (Problem("spec.nodeName", "too far"),))
    return pod.spec.node_name


@pytest.fixture
def store() -> ObjectStore[Pod, str]:
    """Keep where pods are."""
    return ObjectStore(Pod, node_of)


def put(store: ObjectStore[Pod, str], *raws: Raw) -> list[Change[str]]:
    """Apply events about objects that are there."""
    return [change for raw in raws for change in store.apply(event("MODIFIED", raw))]


def replace(store: ObjectStore[Pod, str], raws: Iterable[Raw]) -> list[Change[str]]:
    """Apply a list."""
    return list(store.replace(map(store.read, raws)))


def test_an_object_comes_changes_and_goes(store: ObjectStore[Pod, str]) -> None:
    """Each change has the state before and after, and the store follows."""
    assert put(store, pod("a", 1)) == [Added("ns/a", "")]
    assert put(store, pod("a", 2, node="n1")) == [Modified("ns/a", "", "n1")]
    assert dict(store.objects) == {"ns/a": "n1"}
    assert list(store.apply(event("DELETED", pod("a", 3, node="n2")))) == [Deleted("ns/a", "n1")]
    assert dict(store.objects) == {}


def test_what_is_known_is_not_repeated(store: ObjectStore[Pod, str]) -> None:
    """Neither the same version again, nor a version whose difference is not kept, nor an unknown's deletion."""
    put(store, pod("a", 1, node="n1"))
    assert put(store, pod("a", 1, node="n1"), pod("a", 2, node="n1")) == []
    assert list(store.apply(event("DELETED", pod("b", 3)))) == []


def test_another_uid_is_another_object(store: ObjectStore[Pod, str]) -> None:
    """An object that was made anew was deleted in between, even with the same content."""
    put(store, pod("a", 1))
    assert put(store, pod("a", 2, uid="v")) == [Deleted("ns/a", ""), Added("ns/a", "")]
    assert replace(store, [pod("a", 3, uid="w")]) == [Deleted("ns/a", ""), Added("ns/a", "")]


def test_a_list_comes_out_as_the_difference(store: ObjectStore[Pod, str]) -> None:
    """First what is gone, then what is different or new, and nothing of what is the same."""
    put(store, pod("same", 1), pod("gone", 2), pod("moved", 3))
    assert replace(store, [pod("same", 1), pod("moved", 5, node="n1"), pod("new", 6)]) == [
        Deleted("ns/gone", ""),
        Modified("ns/moved", "", "n1"),
        Added("ns/new", ""),
    ]
    assert dict(store.objects) == {"ns/same": "", "ns/moved": "n1", "ns/new": ""}


def test_whole_objects_can_be_kept() -> None:
    """Without a projection every version is a change."""
    store = ObjectStore(Pod, keep_whole)
    (added,) = store.apply(event("ADDED", pod("a", 1)))
    (modified,) = store.apply(event("MODIFIED", pod("a", 2)))
    assert isinstance(added, Added)
    assert isinstance(modified, Modified)
    assert (modified.old, modified.old.metadata.resource_version) == (added.new, "1")


def test_cluster_scoped_objects_are_known_by_name(store: ObjectStore[Pod, str]) -> None:
    """The key is the name alone where there is no namespace."""
    assert put(store, pod("a", 1, namespace="")) == [Added("a", "")]


def test_a_misfit_is_told_once_and_is_not_there(store: ObjectStore[Pod, str]) -> None:
    """By type or by projection, it leaves the store, comes back when mended, and is forgotten when deleted."""
    put(store, pod("a", 1))
    deleted, rejection = put(store, pod("a", 2, node=7))
    assert deleted == Deleted("ns/a", "")
    assert rejection == Rejection("ns/a", (Problem("spec.nodeName", "Expected `str`, got `int`"),))
    assert put(store, pod("a", 3, node=7)) == []
    assert put(store, pod("a", 4, node="moon")) == [Rejection("ns/a", (Problem("spec.nodeName", "too far"),))]
    assert store.rejected.keys() == {"ns/a"}
    assert put(store, pod("a", 5)) == [Added("ns/a", "")]
    assert not store.rejected
    put(store, pod("a", 6, node=7))
    assert list(store.apply(event("DELETED", pod("a", 7, node=7)))) == []
    assert not store.rejected


def test_misfits_of_a_list(store: ObjectStore[Pod, str]) -> None:
    """A list tells of new misfits only, and forgets those that are gone."""
    put(store, pod("old", 1, node=7), pod("gone", 2, node=7))
    new = Rejection("ns/new", (Problem("spec.nodeName", "Expected `str`, got `int`"),))
    assert replace(store, [pod("old", 1, node=7), pod("new", 3, node=7)]) == [new]
    assert store.rejected.keys() == {"ns/old", "ns/new"}


def test_changes_and_store_go_in_step(store: ObjectStore[Pod, str]) -> None:
    """Whoever looks at the store while told of a change sees that change, and none that is still to be told."""
    seen = [dict(store.objects) for _ in store.replace(map(store.read, [pod("a", 1), pod("b", 2)]))]
    assert seen == [{"ns/a": ""}, {"ns/a": "", "ns/b": ""}]


def test_a_type_needs_metadata() -> None:
    """What has no name cannot be kept by name: a mistake of the program, told at once."""

    class Nameless(ApiStruct, frozen=True):
        """Has nothing to be known by."""

    with pytest.raises(TypeError, match="Nameless has no metadata"):
        ObjectStore(Nameless, keep_whole)
