"""Events and lists become changes."""

from collections.abc import Iterable

import msgspec
import pytest
from msgspec import Raw

from cpg_api.core.pod import Pod
from cpg_api.parsing import Rejected
from cpg_api.problems import Problem
from cpg_api.structs import ApiStruct
from cpg_client.stores import (
    LARGE_BYTES,
    Added,
    Change,
    Deleted,
    Modified,
    ObjectStore,
    Rejection,
    StoredObject,
    keep_whole,
)
from cpg_client.watching import EventType, WatchEvent


def pod(name: str, version: int, *, uid: str = "u", node: object = "", namespace: str = "ns") -> Raw:
    """Encode a pod."""
    metadata = {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": str(version)}
    return Raw(msgspec.json.encode({"metadata": metadata, "spec": {"nodeName": node}}))


def event(kind: EventType, raw: Raw) -> WatchEvent:
    """Build an event; a store does not read its version."""
    return WatchEvent(kind, "", raw)


def node_or_reject(pod: Pod) -> str | Rejected:
    """Keep the node of a pod, and reject a pod on the moon."""
    if pod.spec.node_name == "moon":
        return Rejected(pod.metadata.key, (Problem("spec.nodeName", "too far"),))
    return pod.spec.node_name


@pytest.fixture
def store() -> ObjectStore[Pod, str]:
    """Return a store of pods' nodes."""
    return ObjectStore(Pod, node_or_reject)


def put(store: ObjectStore[Pod, str], *raws: Raw) -> list[Change[str]]:
    """Apply events about existing objects."""
    return [change for raw in raws for change in store.apply(event("MODIFIED", raw))]


def replace(store: ObjectStore[Pod, str], raws: Iterable[Raw]) -> list[Change[str]]:
    """Apply a list."""
    return list(store.replace(map(store.read, raws)))


def test_an_object_is_added_modified_and_deleted(store: ObjectStore[Pod, str]) -> None:
    """Each change has the state before and after, and the store follows."""
    assert put(store, pod("a", 1)) == [Added("ns/a", "")]
    assert put(store, pod("a", 2, node="n1")) == [Modified("ns/a", "", "n1")]
    assert dict(store.objects) == {"ns/a": "n1"}
    assert list(store.apply(event("DELETED", pod("a", 3, node="n2")))) == [Deleted("ns/a", "n1")]
    assert dict(store.objects) == {}


def test_known_states_are_not_reported_again(store: ObjectStore[Pod, str]) -> None:
    """Neither the same version, nor a version with the same projection, nor the deletion of an unknown object."""
    put(store, pod("a", 1, node="n1"))
    assert put(store, pod("a", 1, node="n1"), pod("a", 2, node="n1")) == []
    assert list(store.apply(event("DELETED", pod("b", 3)))) == []


def test_another_uid_is_another_object(store: ObjectStore[Pod, str]) -> None:
    """A recreated object was deleted in between, even with the same content."""
    put(store, pod("a", 1))
    assert put(store, pod("a", 2, uid="v")) == [Deleted("ns/a", ""), Added("ns/a", "")]
    assert replace(store, [pod("a", 3, uid="w")]) == [Deleted("ns/a", ""), Added("ns/a", "")]


def test_a_list_is_reported_as_the_difference(store: ObjectStore[Pod, str]) -> None:
    """First deletions, then changed and new objects, and nothing for unchanged ones."""
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


def test_the_key_of_a_cluster_scoped_object_is_its_name() -> None:
    """Without a namespace."""
    store = ObjectStore(Pod, node_or_reject, namespaced=False)
    assert put(store, pod("a", 1, namespace="")) == [Added("a", "")]


@pytest.mark.parametrize("odd", [{"name": ""}, {"uid": ""}, {"name": "a/b"}, {"namespace": "a/b"}, {"namespace": ""}])
def test_an_object_without_the_identity_that_servers_give_is_rejected(
    store: ObjectStore[Pod, str], odd: dict[str, str]
) -> None:
    """Its key would be that of another object, or of none."""
    metadata = {"name": "a", "namespace": "ns", "uid": "u"} | odd
    (found,) = put(store, Raw(msgspec.json.encode({"metadata": metadata})))
    assert isinstance(found, Rejection)
    assert dict(store.objects) == {}


def test_a_cluster_scoped_object_with_a_namespace_is_rejected() -> None:
    """Others would look for it by its name alone."""
    (found,) = put(ObjectStore(Pod, node_or_reject, namespaced=False), pod("a", 1))
    assert isinstance(found, Rejection)


def test_a_rejected_object_is_reported_once_and_absent(store: ObjectStore[Pod, str]) -> None:
    """By type or by projection. It leaves the store, returns when repaired, and is forgotten when deleted."""
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


def test_rejected_objects_of_a_list(store: ObjectStore[Pod, str]) -> None:
    """A list reports new ones only, and forgets deleted ones."""
    put(store, pod("old", 1, node=7), pod("gone", 2, node=7))
    new = Rejection("ns/new", (Problem("spec.nodeName", "Expected `str`, got `int`"),))
    assert replace(store, [pod("old", 1, node=7), pod("new", 3, node=7)]) == [new]
    assert store.rejected.keys() == {"ns/old", "ns/new"}


def test_the_store_changes_with_each_change(store: ObjectStore[Pod, str]) -> None:
    """While a change is handled, the store shows it and none of the later ones."""
    seen = [dict(store.objects) for _ in store.replace(map(store.read, [pod("a", 1), pod("b", 2)]))]
    assert seen == [{"ns/a": ""}, {"ns/a": "", "ns/b": ""}]


def test_a_type_needs_metadata() -> None:
    """Without it there is no key: a bug, reported at once."""

    class Nameless(ApiStruct, frozen=True):
        """A type without metadata."""

    with pytest.raises(TypeError, match="Nameless has no metadata"):
        ObjectStore(Nameless, keep_whole)


def test_large_projections_are_reduced() -> None:
    """Objects that are large on the wire alone are not measured."""
    store = ObjectStore(Pod, lambda pod: pod.metadata.labels, reduce=lambda labels: {"labels": str(len(labels))})

    def read(**metadata: object) -> object:
        identity = {"name": "a", "namespace": "ns", "uid": "u"}
        found = store.read(Raw(msgspec.json.encode({"metadata": identity | metadata})))
        return found.projected if isinstance(found, StoredObject) else found

    large = {f"k{number}": "x" for number in range(20_000)}
    assert read(annotations=large, labels={"a": "b"}) == {"a": "b"}
    assert read(labels=large) == {"labels": "20000"}


def test_a_large_object_may_be_rejected() -> None:
    """It is absent then, like one that does not fit."""
    refused = Rejected("ns/a", (Problem("", "too large"),))
    store = ObjectStore(Pod, keep_whole, reduce=lambda _: refused)
    metadata = {"name": "a", "namespace": "ns", "uid": "u", "labels": {"a": "x" * LARGE_BYTES}}
    large = Raw(msgspec.json.encode({"metadata": metadata}))
    assert store.read(large) == refused
