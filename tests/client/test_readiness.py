"""When a replica is ready: it hears the API server well, or stands by for one that leads."""

from typing import cast

import pytest

from cpg_client.informers import Informers
from cpg_client.leader_election import LeaderElector
from cpg_client.readiness import MAX_FAILURE_SECONDS, MAX_SILENCE_SECONDS, Readiness
from cpg_client.resources import PODS
from cpg_client.session_health import SessionHealth


class FakeHealth:
    """Informers and an elector of which it is known how they fare."""

    def __init__(self, *, synced: bool = True, failing: float = 0.0, age: float = 0.0, leading: bool = True) -> None:
        self.synced, self.leading, self.leader = synced, leading, "somebody"
        self._failing, self._age = failing, age
        self.shut: dict[str, str] = {}

    def forbidden(self, _: float) -> dict[str, str]:
        """Return what is closed to us."""
        return self.shut

    def longest_failure(self, now: float) -> float:
        """Return for how long all has failed."""
        return self._failing + now

    failing_for = longest_failure

    def longest_silence(self, now: float) -> float:
        """Return for how long nothing was heard."""
        return self._age + now


def judged(
    informers: FakeHealth | None = None, elector: FakeHealth | None = None, *, is_ending: bool = False
) -> tuple[int, str]:
    """Return what is answered."""
    readiness = Readiness(clock=lambda: 0.0)
    readiness.informers = cast("Informers | None", informers)
    readiness.elector = cast("LeaderElector | None", elector)
    readiness.is_stopping = is_ending
    answer = readiness.page("")
    return answer.status, answer.body.decode().strip()


@pytest.mark.parametrize(
    ("informers", "elector", "expected"),
    [
        (None, None, (503, "not all objects have been read yet")),
        (FakeHealth(synced=False), None, (503, "not all objects have been read yet")),
        (FakeHealth(), None, (200, "ok")),
        (FakeHealth(), FakeHealth(), (200, "ok")),
        (FakeHealth(failing=MAX_FAILURE_SECONDS - 1, age=MAX_SILENCE_SECONDS - 1), None, (200, "ok")),
        (FakeHealth(failing=MAX_FAILURE_SECONDS), None, (503, "a watch has been failing for 5 s")),
        (FakeHealth(age=MAX_SILENCE_SECONDS), None, (503, "no data from the API server for 90 s")),
        (None, FakeHealth(leading=False), (200, "standing by: somebody leads")),
        (FakeHealth(), FakeHealth(leading=False), (200, "standing by: somebody leads")),
        (FakeHealth(synced=False), FakeHealth(leading=False), (503, "not all objects have been read yet")),
        (FakeHealth(failing=MAX_FAILURE_SECONDS), FakeHealth(leading=False), (503, "a watch has been failing for 5 s")),
        (None, FakeHealth(leading=False, failing=7), (503, "the lease cannot be read or written for 7 s")),
    ],
)
def test_who_is_ready(informers: FakeHealth | None, elector: FakeHealth | None, expected: tuple[int, str]) -> None:
    """And why another is not, in a word."""
    assert judged(informers, elector) == expected


def test_nobody_stands_by_for_nobody() -> None:
    """Before the lease has been read for a first time, it is not known whether anybody schedules."""
    elector = FakeHealth(leading=False)
    elector.leader = ""
    assert judged(None, elector) == (503, "standing by: no replica leads")


def test_who_ends_is_not_ready() -> None:
    """However well it hears."""
    assert judged(FakeHealth(), is_ending=True) == (503, "ending")


def test_nothing_was_heard_before_the_beginning() -> None:
    """The age of no news is endless."""
    assert Readiness().age() == float("inf")


@pytest.mark.parametrize(
    ("session_health", "expected"),
    [
        (FakeHealth(), (200, "ok")),
        (FakeHealth(failing=MAX_FAILURE_SECONDS), (503, "a watch has been failing for 5 s")),
        (FakeHealth(age=MAX_SILENCE_SECONDS), (503, "no data from the API server for 90 s")),
    ],
)
def test_watches_of_others_count_as_ours(session_health: FakeHealth, expected: tuple[int, str]) -> None:
    """Who hears through somebody else is ready when that one hears."""
    readiness = Readiness(clock=lambda: 0.0)
    readiness.informers = cast("Informers", FakeHealth())
    readiness.session_health = cast("SessionHealth", session_health)
    answer = readiness.page("")
    assert (answer.status, answer.body.decode().strip()) == expected


def test_what_is_closed_is_told() -> None:
    """Whoever is ready all the same."""
    informers = FakeHealth()
    informers.shut = {"/b/pods": "b", "/a/pods": "a", "/a/podgroups": "a"}
    assert judged(informers) == (200, "ok, but may not read a, b")
    assert judged(informers, FakeHealth(leading=False)) == (200, "standing by: somebody leads, but may not read a, b")


def test_silence_is_told_by_what_is_watched() -> None:
    """Ours and theirs together."""
    readiness = Readiness(clock=lambda: 7.0)
    assert (readiness.ages(), readiness.age()) == ({}, float("inf"))
    readiness.informers = Informers()
    readiness.session_health = SessionHealth([(PODS, None)], lambda: 5.0)
    assert (readiness.ages(), readiness.age()) == ({PODS.path(): 2.0}, 2.0)
