"""What was written is not written again until the watch has shown something newer."""

from msgspec.structs import replace

from cpg_client.resources import CPG_POD_GROUPS
from cpg_engine.testing.builders import metadata
from cpg_operator.expectations import Expectations
from cpg_operator.writes import Verb, Write


def write(part: str = "health", version: str = "1", **body: int) -> Write:
    """Return a write to one group."""
    target = replace(metadata("a"), resource_version=version)
    return Write(verb=Verb.APPLY_STATUS, resource=CPG_POD_GROUPS, target=target, part=part, body=body)


def test_a_write_is_met_for_the_state_that_it_was_made_from() -> None:
    """Not for a newer one, nor with another body, nor of another part."""
    expected = Expectations()
    assert not expected.met(write(pods=1))
    expected.note(write(pods=1))
    assert expected.met(write(pods=1))
    assert not expected.met(write(pods=2))
    assert not expected.met(write(version="2", pods=1))
    assert not expected.met(write("priority", pods=1))


def test_what_is_gone_is_forgotten() -> None:
    """A process that runs for months must not remember all that ever was."""
    expected = Expectations()
    expected.note(write(pods=1))
    expected.forget(write().target.uid)
    expected.forget("never seen")
    assert not expected.met(write(pods=1))
