"""What Kopf gets of lists and watches."""

import json
from typing import Any

import pytest

from cpg_api.scheduling.names import INSTANTIATE
from cpg_client.slim_answers import slim_event, slim_page

IDENTITY = {"name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7"}
READ = {
    "generation": 3,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-02T00:00:00Z",
    "deletionGracePeriodSeconds": 0,
    "finalizers": ["f"],
    "annotations": {INSTANTIATE: "true"},
    "ownerReferences": [{"name": "c", "controller": True, "blockOwnerDeletion": False}],
}
LARGE = {
    **IDENTITY,
    **READ,
    "labels": {"l": "x" * 9999},
    "managedFields": [{"fieldsV1": {"f:spec": {}}}],
    "annotations": {INSTANTIATE: "true", "tool/applied": "x" * 9999},
    "ownerReferences": [*READ["ownerReferences"], {"name": "other"}],  # type: ignore[misc]
}
REST = {"apiVersion": "g/v1", "kind": "K", "spec": {"a": [1, None]}, "status": {"b": 1.5}}


def line(kind: str, found: Any) -> bytes:  # noqa: ANN401  # as JSON is
    """Return an event of a watch."""
    return json.dumps({"type": kind, "object": found}).encode()


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_events_have_slim_metadata(kind: str) -> None:
    """Spec and status are as they were."""
    found = json.loads(slim_event(line(kind, {"metadata": LARGE, **REST})))
    assert found == {"type": kind, "object": {"metadata": {**IDENTITY, **READ}, **REST}}


def test_absent_parts_stay_absent() -> None:
    """Nothing is added to an object."""
    found = json.loads(slim_event(line("ADDED", {"metadata": {"name": "a", "annotations": {"x": "y"}}})))
    assert found["object"] == {"metadata": {"name": "a"}}


def test_objects_with_odd_metadata_are_unchanged() -> None:
    """The view rejects them."""
    odd = {"type": "ADDED", "object": {"metadata": {"name": ["odd"]}}}
    assert json.loads(slim_event(json.dumps(odd).encode())) == odd


@pytest.mark.parametrize(
    "text",
    [
        line("ERROR", {"kind": "Status", "metadata": {}, "code": 410}),
        line("BOOKMARK", {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}),
        b"no JSON",
    ],
)
def test_what_is_no_object_is_unchanged(text: bytes) -> None:
    """Errors and bookmarks are for Kopf alone."""
    assert slim_event(text) == text


def test_items_of_a_list_are_slim_page() -> None:
    """The version and the token of the next page stay."""
    page = {"apiVersion": "g/v1", "kind": "KList", "metadata": {"resourceVersion": "9", "continue": "t"}}
    found = json.loads(slim_page(json.dumps({**page, "items": [{"metadata": LARGE, **REST}, 5]}).encode()))
    assert found == {**page, "items": [{"metadata": {**IDENTITY, **READ}, **REST}, 5]}


@pytest.mark.parametrize("body", [b'{"kind": "Status", "code": 410}', b'{"items": []}', b"no JSON"])
def test_other_answers_are_unchanged(body: bytes) -> None:
    """Such as an error."""
    assert slim_page(body) == body
