"""Forbidden namespaces, and that they do not count as failures."""

from collections.abc import Mapping

import pytest

from cpg_client.watch_health import FORBIDDEN_GRACE_SECONDS, CollectionHealth, WatchHealth

PODS, OURS, THEIRS = "/pods", "/ours/pods", "/theirs/pods"


class SomeCollections(WatchHealth):
    """The health of a few collections."""

    def __init__(self, **refused: float) -> None:
        """Start with data at 0 in two namespaces; some have been refused since, by namespace."""
        self.there = {f"/{space}/pods": CollectionHealth(PODS, space, last_heard=0.0) for space in ("ours", "theirs")}
        for space, since in refused.items():
            self.there[f"/{space}/pods"].record_failure(since, refused=True)

    def collections(self) -> Mapping[str, CollectionHealth]:
        """Return them."""
        return self.there


def test_a_namespace_is_forbidden_after_some_time() -> None:
    """Until then a refusal counts as a failure."""
    watches = SomeCollections(theirs=1.0)
    assert watches.forbidden(FORBIDDEN_GRACE_SECONDS) == {}
    assert watches.longest_failure(FORBIDDEN_GRACE_SECONDS) == FORBIDDEN_GRACE_SECONDS - 1
    assert watches.forbidden(1 + FORBIDDEN_GRACE_SECONDS) == {THEIRS: "theirs"}
    assert (watches.longest_failure(1 + FORBIDDEN_GRACE_SECONDS), watches.longest_silence(100)) == (0, 100)
    watches.there[OURS].record_data(99)
    assert (watches.longest_silence(100), watches.silence(100)) == (1, {OURS: 1, THEIRS: 100})


def test_no_namespace_is_forbidden_where_all_are_refused() -> None:
    """This process lacks the right, and that is a failure."""
    watches = SomeCollections(ours=0.0, theirs=0.0)
    assert watches.forbidden(100) == {}
    assert watches.longest_failure(100) == 100


@pytest.mark.parametrize("refused", [True, False])
def test_another_failure_ends_a_forbidden_state(*, refused: bool) -> None:
    """A namespace that does not answer any more has been failing since its first refusal."""
    watches = SomeCollections(theirs=0.0)
    watches.there[THEIRS].record_failure(FORBIDDEN_GRACE_SECONDS, refused=refused)
    assert bool(watches.forbidden(FORBIDDEN_GRACE_SECONDS)) is refused
    assert watches.longest_failure(FORBIDDEN_GRACE_SECONDS) == (0 if refused else FORBIDDEN_GRACE_SECONDS)
    watches.there[THEIRS].record_data(FORBIDDEN_GRACE_SECONDS)
    assert (watches.forbidden(100), watches.longest_failure(100)) == ({}, 0)


def test_an_outage_lasts_for_as_long_as_all_collections_fail() -> None:
    """One that answers ends it, and a forbidden namespace neither begins nor ends one."""
    watches = SomeCollections(theirs=1.0)
    assert watches.outage(5.0) == 0.0
    watches.there[OURS].record_failure(3.0, refused=False)
    assert (watches.outage(5.0), watches.outage(1 + FORBIDDEN_GRACE_SECONDS)) == (2.0, FORBIDDEN_GRACE_SECONDS - 2)
    watches.there[OURS].record_data(20.0)
    assert watches.outage(30.0) == 0.0
