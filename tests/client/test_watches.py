"""What is closed to us, and that it counts for nothing else."""

from collections.abc import Mapping

import pytest

from cpg_client.watches import PATIENCE, Line, Watches

PODS, OURS, THEIRS = "/pods", "/ours/pods", "/theirs/pods"


class Some(Watches):
    """What is heard of a few collections."""

    def __init__(self, **refused: float) -> None:
        """Have been heard at 0, in two namespaces; some have been refused since then, by namespace."""
        self.there = {f"/{space}/pods": Line(PODS, space, last_heard=0.0) for space in ("ours", "theirs")}
        for space, since in refused.items():
            self.there[f"/{space}/pods"].failed(since, refused=True)

    def lines(self) -> Mapping[str, Line]:
        """Return them."""
        return self.there


def test_a_namespace_is_closed_after_a_while_of_refusals() -> None:
    """Not at once: until then it is trouble like any other."""
    watches = Some(theirs=1.0)
    assert watches.closed(PATIENCE) == {}
    assert watches.failing_for(PATIENCE) == PATIENCE - 1
    assert watches.closed(1 + PATIENCE) == {THEIRS: "theirs"}
    assert (watches.failing_for(1 + PATIENCE), watches.unheard_for(100)) == (0, 100)
    watches.there[OURS].heard(99)
    assert (watches.unheard_for(100), watches.unheard(100)) == (1, {OURS: 1, THEIRS: 100})


def test_where_nothing_may_be_read_nothing_is_closed() -> None:
    """It is we who lack the right, and waiting for it is all that is left."""
    watches = Some(ours=0.0, theirs=0.0)
    assert watches.closed(100) == {}
    assert watches.failing_for(100) == 100


@pytest.mark.parametrize("refused", [True, False])
def test_other_trouble_opens_what_was_closed(*, refused: bool) -> None:
    """Who is refused, then not answered at all, is in trouble since the first time."""
    watches = Some(theirs=0.0)
    watches.there[THEIRS].failed(PATIENCE, refused=refused)
    assert bool(watches.closed(PATIENCE)) is refused
    assert watches.failing_for(PATIENCE) == (0 if refused else PATIENCE)
    watches.there[THEIRS].heard(PATIENCE)
    assert (watches.closed(100), watches.failing_for(100)) == ({}, 0)
