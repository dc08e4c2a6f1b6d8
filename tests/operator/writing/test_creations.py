"""How long a creation is remembered."""

from cpg_operator.writing.creations import SHOWN_WITHIN_SECONDS, RecentCreations


def test_a_creation_is_remembered_for_a_few_seconds() -> None:
    """After that, a deleted object can be created again; a creation that is recorded again counts from then."""
    now = 100.0
    creations = RecentCreations(lambda: now)
    assert creations.seconds_left("a") == 0.0
    creations.record("a")
    now += 2.0
    creations.record("b")
    assert (creations.seconds_left("a"), creations.seconds_left("b")) == (
        SHOWN_WITHIN_SECONDS - 2.0,
        SHOWN_WITHIN_SECONDS,
    )
    now += SHOWN_WITHIN_SECONDS - 1.0
    creations.record("c")
    assert creations.seconds_left("a") == 0.0
    creations.record("b")
    assert creations.seconds_left("b") == SHOWN_WITHIN_SECONDS


def test_old_creations_are_dropped() -> None:
    """An operator creates thousands of groups over time."""
    now = 0.0
    creations = RecentCreations(lambda: now)
    for number in range(1000):
        now += 1.0
        creations.record(str(number))
    assert len(creations._at) <= SHOWN_WITHIN_SECONDS + 1
