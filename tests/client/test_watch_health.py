"""What is closed to us, and that it counts for nothing else."""

from collections.abc import Mapping

import pytest

from cpg_client.watch_health import FORBIDDEN_GRACE_SECONDS, CollectionHealth, WatchHealth

PODS, OURS, THEIRS = "/pods", "/ours/pods", "/theirs/pods"


class Some(WatchHealth):
    """What is heard of a few collections."""

    def __init__(self, **refused: float) -> None:
        """Have been heard at 0, in two namespaces; some have been refused since then, by namespace."""
        self.there = {f"/{space}/pods": CollectionHealth(PODS, space, last_heard=0.0) for space in ("ours", "theirs")}
        for space, since in refused.items():
            self.there[f"/{space}/pods"].failed(since, refused=True)

    def collections(self) -> Mapping[str, CollectionHealth]:
        """Return them."""
        return self.there


def test_a_namespace_is_closed_after_a_while_of_refusals() -> None:
    """Not at once: until then it is trouble like any other."""
    watches = Some(theirs=1.0)
    assert watches.forbidden(FORBIDDEN_GRACE_SECONDS) == {}
    assert watches.longest_failure(FORBIDDEN_GRACE_SECONDS) == FORBIDDEN_GRACE_SECONDS - 1
    assert watches.forbidden(1 + FORBIDDEN_GRACE_SECONDS) == {THEIRS: "theirs"}
    assert (watches.longest_failure(1 + FORBIDDEN_GRACE_SECONDS), watches.longest_silence(100)) == (0, 100)
    watches.there[OURS].heard(99)
    assert (watches.longest_silence(100), watches.silence(100)) == (1, {OURS: 1, THEIRS: 100})


def test_where_nothing_may_be_read_nothing_is_closed() -> None:
    """It is we who lack the right, and waiting for it is all that is left."""
    watches = Some(ours=0.0, theirs=0.0)
    assert watches.forbidden(100) == {}
    assert watches.longest_failure(100) == 100


@pytest.mark.parametrize("refused", [True, False])
def test_other_trouble_opens_what_was_closed(*, refused: bool) -> None:
    """Who is refused, then not answered at all, is in trouble since the first time."""
    watches = Some(theirs=0.0)
    watches.there[THEIRS].failed(FORBIDDEN_GRACE_SECONDS, refused=refused)
    assert bool(watches.forbidden(FORBIDDEN_GRACE_SECONDS)) is refused
    assert watches.longest_failure(FORBIDDEN_GRACE_SECONDS) == (0 if refused else FORBIDDEN_GRACE_SECONDS)
    watches.there[THEIRS].heard(FORBIDDEN_GRACE_SECONDS)
    assert (watches.forbidden(100), watches.longest_failure(100)) == ({}, 0)
