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
    """They come first, and are as careful as the most careful of them; other writes stay as they are."""
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


def test_an_object_without_a_uid_is_known_by_its_name() -> None:
    """One that is about to be created has none yet."""
    first, second = (
        Write(verb=Verb.CREATE, resource=CPG_POD_GROUPS, target=ObjectMeta(name=name, namespace="n"), part="whole")
        for name in ("a", "b")
    )
    assert first.place != second.place
    assert merge_writes([first, second]) == [first, second]


def test_a_status_waits_for_what_would_make_it_wrong() -> None:
    """For a change of the spec, and where it goes over the version that a merge replaces; another look follows."""
    target = ObjectMeta(uid="a")
    health = Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part="health")
    validity = Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part="validity", unchanged=True)
    surplus = Write(verb=Verb.MERGE_STATUS, resource=CPG_POD_GROUPS, target=target, part="health", unchanged=True)
    event = Write(verb=Verb.TELL, resource=CPG_POD_GROUPS, target=target, part="told")
    priority = merge("a", "priority", {"spec": {"priority": 1}})
    finalizers = merge("a", "finalizers", {"metadata": {"finalizers": ["f"]}})
    assert merge_writes([priority, health, validity, event]) == [replace(priority, again=True), event]
    assert merge_writes([finalizers, health, validity]) == [replace(finalizers, again=True), health]
    assert merge_writes([finalizers, surplus]) == [replace(finalizers, again=True)]
    assert merge_writes([finalizers, health]) == [finalizers, health]


def test_nothing_waits_for_a_merge_that_fails() -> None:
    """A policy may refuse a change of the spec for ever: finalizer and status go without it."""
    target = ObjectMeta(name="a", namespace="default", uid="a")
    health = Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part="health")
    validity = Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part="validity", unchanged=True)
    finalizers = merge("a", "finalizers", {"metadata": {"finalizers": ["f"]}}, unchanged=True)
    priority = merge("a", "priority", {"spec": {"priority": 1}}, unchanged=True)
    (both,) = merge_writes([finalizers, priority])
    failing = {both.place}
    assert merge_writes([finalizers, priority, health], failing) == [finalizers, priority, health]
    assert merge_writes([finalizers, priority, validity], failing) == [replace(finalizers, again=True), priority]
    assert merge_writes([priority, health, validity], failing) == [priority, health, validity]


def test_a_word_about_what_fails_is_not_said_again() -> None:
    """It tells what other writes do."""
    told = Write(verb=Verb.TELL, resource=CPG_POD_GROUPS, target=ObjectMeta(uid="a"), part="told")
    other = merge("b", "fields", {"spec": {}})
    assert merge_writes([told, other]) == [other, told]
    assert merge_writes([told, other], {other.place}) == [other]
