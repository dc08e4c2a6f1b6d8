"""When a replica is ready: its watches are current, or it stands by for the leader."""

import asyncio
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

import pytest

from cpg_client.connection import Connection, ConnectionSettings
from cpg_client.endpoint import Endpoint
from cpg_client.informers import Informers
from cpg_client.leader_election import LeaderElector
from cpg_client.probe_server import ProbeResponse
from cpg_client.readiness import MAX_FAILURE_SECONDS, MAX_SILENCE_SECONDS, Readiness
from cpg_client.resources import PODS
from cpg_client.session_health import SessionHealth
from cpg_client.timing import cancel_and_wait

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer


class FakeHealth:
    """Informers and an elector with a given health."""

    def __init__(self, *, synced: bool = True, failing: float = 0.0, age: float = 0.0, leading: bool = True) -> None:
        self.synced, self.leading, self.leader = synced, leading, "replica-1"
        self._failing, self._age = failing, age
        self.shut: dict[str, str] = {}

    def forbidden(self, _: float) -> dict[str, str]:
        """Return the forbidden namespaces."""
        return self.shut

    def longest_failure(self, now: float) -> float:
        """Return for how long all has failed."""
        return self._failing + now

    def failing_for(self) -> float:
        """Return for how long the lease has failed."""
        return self._failing

    def longest_silence(self, now: float) -> float:
        """Return the seconds of silence."""
        return self._age + now


def probe(
    informers: FakeHealth | None = None, elector: FakeHealth | None = None, *, is_ending: bool = False
) -> tuple[int, str]:
    """Return status and text of a readiness probe."""
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
        (None, FakeHealth(leading=False), (200, "standing by: replica-1 leads")),
        (FakeHealth(), FakeHealth(leading=False), (200, "standing by: replica-1 leads")),
        (FakeHealth(synced=False), FakeHealth(leading=False), (503, "not all objects have been read yet")),
        (FakeHealth(failing=MAX_FAILURE_SECONDS), FakeHealth(leading=False), (503, "a watch has been failing for 5 s")),
        (None, FakeHealth(leading=False, failing=7), (503, "the lease cannot be read or written for 7 s")),
    ],
)
def test_readiness_and_its_reason(
    informers: FakeHealth | None, elector: FakeHealth | None, expected: tuple[int, str]
) -> None:
    """In one sentence."""
    assert probe(informers, elector) == expected


def test_a_standby_without_a_leader_is_not_ready() -> None:
    """Before the first read of the lease it is unknown whether any replica leads."""
    elector = FakeHealth(leading=False)
    elector.leader = ""
    assert probe(None, elector) == (503, "standing by: no replica leads")


def test_a_standby_that_reads_is_not_ready_before_it_reads() -> None:
    """It is not taken for one that begins to read when it leads, not even for a moment."""
    readiness = Readiness(elector=cast("LeaderElector", FakeHealth(leading=False)))
    assert readiness.page("").status == 200
    readiness.reads_on_standby = True
    assert readiness.page("").status == 503


def test_a_stopping_replica_is_not_ready() -> None:
    """However current its watches are."""
    assert probe(FakeHealth(), is_ending=True) == (503, "ending")


def test_the_age_is_infinite_before_the_first_list() -> None:
    """There is no data yet."""
    assert Readiness().age() == float("inf")


@pytest.mark.parametrize(
    ("session_health", "expected"),
    [
        (FakeHealth(), (200, "ok")),
        (FakeHealth(failing=MAX_FAILURE_SECONDS), (503, "a watch has been failing for 5 s")),
        (FakeHealth(age=MAX_SILENCE_SECONDS), (503, "no data from the API server for 90 s")),
    ],
)
def test_watches_of_a_shared_session_count(session_health: FakeHealth, expected: tuple[int, str]) -> None:
    """As our own."""
    readiness = Readiness(clock=lambda: 0.0)
    readiness.informers = cast("Informers", FakeHealth())
    readiness.session_health = cast("SessionHealth", session_health)
    answer = readiness.page("")
    assert (answer.status, answer.body.decode().strip()) == expected


def test_forbidden_namespaces_are_reported() -> None:
    """The replica is ready without them."""
    informers = FakeHealth()
    informers.shut = {"/b/pods": "b", "/a/pods": "a", "/a/podgroups": "a"}
    assert probe(informers) == (200, "ok, but may not read a, b")
    assert probe(informers, FakeHealth(leading=False)) == (200, "standing by: replica-1 leads, but may not read a, b")


def test_ages_are_reported_by_path() -> None:
    """For our watches and for those of a shared session."""
    readiness = Readiness(clock=lambda: 7.0)
    assert (readiness.ages(), readiness.age()) == ({}, float("inf"))
    readiness.informers = Informers()
    readiness.session_health = SessionHealth([(PODS, None)], lambda: 5.0)
    assert (readiness.ages(), readiness.age()) == ({PODS.path(): 2.0}, 2.0)


async def test_a_replica_whose_requests_get_no_connection_is_not_ready(server: "FakeServer") -> None:
    """Its watches may all be well, and yet it can bind nothing."""
    server.streams("/x", end="hold")
    async with Connection(Endpoint(server=server.url), ConnectionSettings(stream_limit=1)) as connection:
        readiness = Readiness(informers=cast("Informers", FakeHealth()), clock=lambda: 0.0, connection=connection)
        streams = [asyncio.create_task(anext(connection.stream("/x", silence=60))) for _ in range(2)]
        await asyncio.sleep(0.05)
        assert readiness.page("").status == 200
        await asyncio.wait(streams, timeout=0.05)
        assert connection.longest_wait() > 0.05
        with patch.object(connection, "longest_wait", return_value=MAX_FAILURE_SECONDS):
            assert readiness.page("") == ProbeResponse(
                b"a request has been waiting for a free connection for 5 s\n", status=503
            )
        for stream in streams:
            await cancel_and_wait(stream)
        assert connection.longest_wait() == 0
    assert connection.longest_wait() == 0
