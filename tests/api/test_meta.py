"""Metadata, conditions and label selectors."""

import pytest

from cpg_api.meta import Condition, LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from cpg_api.parsing import parse_object


@pytest.mark.parametrize(("namespace", "key"), [("ns", "ns/name"), ("", "name")])
def test_the_key_is_namespace_and_name(namespace: str, key: str) -> None:
    """The key of a cluster-scoped object is its name alone."""
    assert ObjectMeta(name="name", namespace=namespace).key == key


def test_metadata_is_decoded_from_the_wire() -> None:
    """Unknown fields are skipped."""
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


def test_a_condition_is_decoded_from_the_wire() -> None:
    """Every field has its name in camelCase."""
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


def test_a_label_selector_distinguishes_absent_from_empty() -> None:
    """Kubernetes reads both the same but writes them differently."""
    data = b'{"matchLabels":{},"matchExpressions":[{"key":"k","operator":"In","values":["v"]}]}'
    expressions = (LabelSelectorRequirement(key="k", operator="In", values=("v",)),)
    assert parse_object(data, LabelSelector) == LabelSelector(match_labels={}, match_expressions=expressions)
    assert parse_object(b"{}", LabelSelector) == LabelSelector(match_labels=None, match_expressions=None)


def test_objects_do_not_share_default_values() -> None:
    """The labels of one object never appear in another."""
    assert ObjectMeta().labels is not ObjectMeta().labels
    assert ObjectMeta().annotations is not ObjectMeta().annotations
