"""A write is not repeated until the watch has shown a newer version."""

from msgspec.structs import replace

from cpg_client.resources import CPG_POD_GROUPS
from cpg_engine.testing.builders import metadata
from cpg_operator.writes import REMEMBERED_SECONDS, Verb, Write
from cpg_operator.writing.expectations import Expectations


def write(part: str = "health", version: str = "1", **body: int) -> Write:
    """Return a write to one group."""
    target = replace(metadata("a"), resource_version=version)
    return Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part=part, body=body)


def test_a_write_is_met_for_the_version_that_it_was_made_from() -> None:
    """It is not met for a newer version, with another body, or for another part."""
    expected = Expectations(lambda: 0.0)
    assert not expected.is_met(write(pods=1))
    expected.record(write(pods=1))
    assert expected.is_met(write(pods=1))
    assert not expected.is_met(write(pods=2))
    assert not expected.is_met(write(version="2", pods=1))
    assert not expected.is_met(write("priority", pods=1))


def test_an_event_is_met_for_every_version() -> None:
    """As long as it concerns the same occasion: other writes change the object meanwhile."""
    expected = Expectations(lambda: 0.0)
    expected.record(replace(write("release", since=5), verb=Verb.EVENT))
    assert expected.is_met(replace(write("release", version="2", since=5), verb=Verb.EVENT))
    assert not expected.is_met(replace(write("release", version="2", since=6), verb=Verb.EVENT))


def test_a_write_that_is_sent_once_is_met_whatever_has_become_of_the_object() -> None:
    """Another client may undo it; only another write to the same part, or time, ends that."""
    expected = Expectations(lambda: 0.0)
    expected.record(replace(write(pods=1), once=True))
    assert expected.is_met(replace(write(version="2", pods=2), once=True))
    expected.record(write(version="3", pods=3))
    assert not expected.is_met(replace(write(version="4", pods=1), once=True))


def test_writes_to_a_deleted_object_are_forgotten() -> None:
    """The memory of a process that runs for months must not grow."""
    expected = Expectations(lambda: 0.0)
    expected.record(write(pods=1))
    expected.forget(write().target.uid)
    expected.forget("never seen")
    assert not expected.is_met(write(pods=1))


def test_writes_are_forgotten_after_a_while() -> None:
    """Such as those to pods: their deletion is not reported here. A new write to an object keeps its entry."""
    now = 0.0
    expected = Expectations(lambda: now)
    for number in range(1000):
        expected.record(replace(write(pods=1), target=metadata(f"gone-{number}")))
    expected.record(write(pods=1))
    now = REMEMBERED_SECONDS
    assert expected.is_met(write(pods=1))
    expected.record(write("priority", pods=1))
    now = REMEMBERED_SECONDS + 1.0
    expected.record(write("priority", pods=2))
    assert len(expected) == 1
    assert expected.is_met(write(pods=1))
    now += REMEMBERED_SECONDS + 1.0
    assert not expected.is_met(write(pods=1))
