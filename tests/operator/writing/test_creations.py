"""How long it is remembered that something was created."""

from cpg_operator.writing.creations import SHOWN_WITHIN, RecentCreations


def test_a_creation_is_remembered_for_a_few_seconds() -> None:
    """And no longer, so that what is deleted can be made anew; one that is noted again counts from then."""
    now = 100.0
    creations = RecentCreations(lambda: now)
    assert creations.left("a") == 0.0
    creations.note("a")
    now += 2.0
    creations.note("b")
    assert (creations.left("a"), creations.left("b")) == (SHOWN_WITHIN - 2.0, SHOWN_WITHIN)
    now += SHOWN_WITHIN - 1.0
    creations.note("c")
    assert creations.left("a") == 0.0
    creations.note("b")
    assert creations.left("b") == SHOWN_WITHIN


def test_no_more_is_kept_than_matters() -> None:
    """Thousands of groups are created in the life of an operator."""
    now = 0.0
    creations = RecentCreations(lambda: now)
    for number in range(1000):
        now += 1.0
        creations.note(str(number))
    assert len(creations._at) <= SHOWN_WITHIN + 1
