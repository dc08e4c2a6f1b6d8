"""What was written is not written again until the watch has shown something newer."""

from msgspec.structs import replace

from cpg_client.resources import CPG_POD_GROUPS
from cpg_engine.testing.builders import metadata
from cpg_operator.writes import Verb, Write
from cpg_operator.writing.expectations import REMEMBERED, Expectations


def write(part: str = "health", version: str = "1", **body: int) -> Write:
    """Return a write to one group."""
    target = replace(metadata("a"), resource_version=version)
    return Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part=part, body=body)


def test_a_write_is_met_for_the_state_that_it_was_made_from() -> None:
    """Not for a newer one, nor with another body, nor of another part."""
    expected = Expectations(lambda: 0.0)
    assert not expected.met(write(pods=1))
    expected.note(write(pods=1))
    assert expected.met(write(pods=1))
    assert not expected.met(write(pods=2))
    assert not expected.met(write(version="2", pods=1))
    assert not expected.met(write("priority", pods=1))


def test_what_is_only_told_is_met_for_every_version() -> None:
    """As long as it is about the same: other writes change the object meanwhile."""
    expected = Expectations(lambda: 0.0)
    expected.note(replace(write("release", since=5), verb=Verb.TELL))
    assert expected.met(replace(write("release", version="2", since=5), verb=Verb.TELL))
    assert not expected.met(replace(write("release", version="2", since=6), verb=Verb.TELL))


def test_what_is_gone_is_forgotten() -> None:
    """A process that runs for months must not remember all that ever was."""
    expected = Expectations(lambda: 0.0)
    expected.note(write(pods=1))
    expected.forget(write().target.uid)
    expected.forget("never seen")
    assert not expected.met(write(pods=1))


def test_what_nobody_says_is_gone_is_forgotten_after_a_while() -> None:
    """Pods, what a sweep misses, and what was noted after its end; but not what was written to again meanwhile."""
    now = 0.0
    expected = Expectations(lambda: now)
    for number in range(1000):
        expected.note(replace(write(pods=1), target=metadata(f"gone-{number}")))
    expected.note(write(pods=1))
    now = REMEMBERED
    assert expected.met(write(pods=1))
    expected.note(write("priority", pods=1))
    now = REMEMBERED + 1.0
    expected.note(write("priority", pods=2))
    assert len(expected) == 1
    assert expected.met(write(pods=1))
    now += REMEMBERED + 1.0
    assert not expected.met(write(pods=1))
