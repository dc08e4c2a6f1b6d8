"""Writes as values."""

from typing import Any

from msgspec.structs import replace

from cpg_api.meta import ObjectMeta
from cpg_client.resources import CPG_POD_GROUPS
from cpg_operator.writes import Verb, Write, merge_writes


def merge(uid: str, part: str, body: dict[str, Any], *, unchanged: bool = False) -> Write:
    """Return a merge of one part of an object."""
    target = ObjectMeta(name=uid, namespace="default", uid=uid)
    return Write(verb=Verb.MERGE, resource=CPG_POD_GROUPS, target=target, part=part, body=body, unchanged=unchanged)


def test_all_merges_of_one_object_become_one() -> None:
    """The combined merge comes first and checks the version if one of them does; other writes stay as they are."""
    status = Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=ObjectMeta(uid="b"), part="health")
    finalizers = merge("a", "finalizers", {"metadata": {"finalizers": ["f"]}}, unchanged=True)
    other = merge("b", "finalizers", {"metadata": {"finalizers": ["g"]}})
    both = merge(
        "a",
        "priority",
        {"metadata": {"finalizers": ["f"]}, "spec": {"priority": 1}},
        unchanged=True,
    )
    priority = merge("a", "priority", {"spec": {"priority": 1}})
    assert merge_writes([status, finalizers, other, priority]) == [both, other, status]


def test_an_object_without_a_uid_is_identified_by_its_name() -> None:
    """An object that is about to be created has no UID yet."""
    first, second = (
        Write(verb=Verb.CREATE, resource=CPG_POD_GROUPS, target=ObjectMeta(name=name, namespace="n"), part="whole")
        for name in ("a", "b")
    )
    assert first.object_part != second.object_part
    assert merge_writes([first, second]) == [first, second]


def test_a_status_waits_for_a_merge_that_would_outdate_it() -> None:
    """A change of the spec, and any merge where the status checks the version; another reconcile follows."""
    target = ObjectMeta(uid="a")
    health = Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part="health")
    validity = Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part="validity", unchanged=True)
    surplus = Write(verb=Verb.MERGE_STATUS, resource=CPG_POD_GROUPS, target=target, part="health", unchanged=True)
    event = Write(verb=Verb.EVENT, resource=CPG_POD_GROUPS, target=target, part="release")
    priority = merge("a", "priority", {"spec": {"priority": 1}})
    finalizers = merge("a", "finalizers", {"metadata": {"finalizers": ["f"]}})
    assert merge_writes([priority, health, validity, event]) == [replace(priority, requeue=True), event]
    assert merge_writes([finalizers, health, validity]) == [replace(finalizers, requeue=True), health]
    assert merge_writes([finalizers, surplus]) == [replace(finalizers, requeue=True)]
    assert merge_writes([finalizers, health]) == [finalizers, health]


def test_nothing_waits_for_a_merge_that_fails() -> None:
    """A policy may refuse a change of the spec for ever: finalizer and status are written without it."""
    target = ObjectMeta(name="a", namespace="default", uid="a")
    health = Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part="health")
    validity = Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part="validity", unchanged=True)
    finalizers = merge("a", "finalizers", {"metadata": {"finalizers": ["f"]}}, unchanged=True)
    priority = merge("a", "priority", {"spec": {"priority": 1}}, unchanged=True)
    (both,) = merge_writes([finalizers, priority])
    failing = {both.object_part}
    assert merge_writes([finalizers, priority, health], failing) == [finalizers, priority, health]
    assert merge_writes([finalizers, priority, validity], failing) == [replace(finalizers, requeue=True), priority]
    assert merge_writes([priority, health, validity], failing) == [priority, health, validity]


def test_an_event_about_failing_writes_is_not_repeated() -> None:
    """Such an event describes what other writes do."""
    event = Write(verb=Verb.EVENT, resource=CPG_POD_GROUPS, target=ObjectMeta(uid="a"), part="release")
    other = merge("b", "fields", {"spec": {}})
    assert merge_writes([event, other]) == [other, event]
    assert merge_writes([event, other], {other.object_part}) == [other]
