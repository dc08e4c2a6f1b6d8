"""What every object carries."""

import pytest

from cpg_api.meta import Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from cpg_api.parsing import parse_object


@pytest.mark.parametrize(("namespace", "key"), [("ns", "ns/name"), ("", "name")])
def test_the_key_is_what_kubectl_users_write(namespace: str, key: str) -> None:
    """A cluster-scoped object is known by its name alone."""
    assert ObjectMeta(name="name", namespace=namespace).key == key


def test_metadata_is_read_from_the_wire() -> None:
    """Every field by its name there; what nobody here reads is skipped."""
    data = b"""{"name":"n","namespace":"ns","uid":"u","resourceVersion":"7","generation":3,"selfLink":"skipped",
        "creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-02T00:00:00Z",
        "deletionGracePeriodSeconds":30,"labels":{"a":"b"},"annotations":{"c":"d"},"finalizers":["f"],
        "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"o","uid":"v","controller":true,
        "blockOwnerDeletion":true}]}"""
    owner = OwnerReference(api_version="v1", kind="Pod", name="o", uid="v", controller=True, block_owner_deletion=True)
    assert parse_object(data, ObjectMeta) == ObjectMeta(
        name="n",
        namespace="ns",
        uid="u",
        resource_version="7",
        generation=3,
        creation_timestamp="2026-01-01T00:00:00Z",
        deletion_timestamp="2026-01-02T00:00:00Z",
        deletion_grace_period_seconds=30,
        labels={"a": "b"},
        annotations={"c": "d"},
        owner_references=(owner,),
        finalizers=("f",),
    )


def test_a_condition_is_read_from_the_wire() -> None:
    """Every field by its name there."""
    data = b"""{"type":"Healthy","status":"False","observedGeneration":2,"reason":"Why","message":"So.",
        "lastTransitionTime":"2026-01-01T00:00:00Z"}"""
    assert parse_object(data, Condition) == Condition(
        type="Healthy",
        status="False",
        observed_generation=2,
        last_transition_time="2026-01-01T00:00:00Z",
        reason="Why",
        message="So.",
    )


def test_a_label_selector_tells_absent_from_empty() -> None:
    """To Kubernetes a selector without fields and one with empty fields are read alike, but written differently."""
    data = b'{"matchLabels":{},"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]}'
    expressions = (LabelSelectorRequirement(key="k", operator="In", values=("v",)),)
    assert parse_object(data, LabelSelector) == LabelSelector(match_labels={}, match_expressions=expressions)
    assert parse_object(b"{}", LabelSelector) == LabelSelector(match_labels=None, match_expressions=None)


def test_two_objects_never_share_their_defaults() -> None:
    """Labels are a dictionary: one object's must not turn up in another's."""
    assert ObjectMeta().labels is not ObjectMeta().labels
    assert ObjectMeta().annotations is not ObjectMeta().annotations
