"""When the view is compared with the API server, in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from cpg_client.connection import Connection
from cpg_client.errors import ConnectionFailedError
from cpg_client.flavours import KINDS, FlavourNotServedError
from cpg_client.resources import CPG_POD_GROUPS
from cpg_client.session_health import SessionHealth
from cpg_client.timing import Timing
from cpg_client.versions import VersionsWentBackError
from cpg_operator.metrics import MetricsSnapshot, OperatorMetrics
from cpg_operator.sources import resync
from cpg_operator.sources.resync import SETTLING_SECONDS, Resync
from cpg_operator.sources.sweep import Sweeper


class Rig:
    """A resync over a sweeper that records its sweeps; time passes only by waiting."""

    def __init__(self, *, end: float) -> None:
        """Start at zero, and end at some time."""
        self.now, self._end = 0.0, end
        self.actions: dict[float, Callable[[], None]] = {}
        self.swept: list[float] = []
        self.metrics = OperatorMetrics()
        self.health = SessionHealth([(CPG_POD_GROUPS, None)], lambda: self.now)
        timing = Timing(sleep=self._sleep, clock=lambda: self.now)
        self.resync = Resync(
            cast("Connection", None),
            cast("Sweeper", self),
            self.health,
            api="auto",
            period=300.0,
            metrics=self.metrics,
            timing=timing,
        )

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        for moment in [one for one in self.actions if one <= self.now]:
            self.actions.pop(moment)()
        if self.now >= self._end:
            raise asyncio.CancelledError

    async def sweep(self) -> int:
        """Find one object wrong."""
        self.swept.append(self.now)
        return 1

    async def run(self) -> None:
        """Run until the end."""
        await self.resync.run(cast("Any", KINDS))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the answers about served kinds, of which the last is repeated."""
    answers: list[object] = [KINDS]

    async def served_flavours(*_: object) -> object:
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(resync, "served_flavours", served_flavours)
    return answers


@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("listed", [False, True])
async def test_a_sweep_follows_each_list_of_kopf(*, listed: bool) -> None:
    """At the next check, and once; otherwise each period. What it finds is counted."""
    rig = Rig(end=400)
    if listed:
        rig.actions[100.0] = lambda: rig.health.record_data(CPG_POD_GROUPS.path(), listed=True)
    with pytest.raises(asyncio.CancelledError):
        await rig.run()
    assert [round(moment) for moment in rig.swept if moment > SETTLING_SECONDS] == ([108] if listed else [333])
    page = rig.metrics.page(MetricsSnapshot(states=(), queued=0, pending_writes=0, watch_age=0.0)).decode()
    assert f"cpg_operator_view_behind_total {len(rig.swept)}.0" in page


@pytest.mark.usefixtures("served")
async def test_versions_that_went_back_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other failures of a sweep do not: it is repeated at the next check."""
    rig = Rig(end=400)
    failures = iter([ConnectionFailedError("server", "GET", "lost"), VersionsWentBackError("/things", "5", "4")])

    async def sweep() -> int:
        raise next(failures)

    monkeypatch.setattr(rig, "sweep", sweep)
    with pytest.raises(VersionsWentBackError):
        await rig.run()
    assert rig.now == 18.0


@pytest.mark.parametrize("answer", [{}, FlavourNotServedError("none")])
async def test_it_ends_when_other_kinds_are_served(served: list[object], answer: object) -> None:
    """An outage in between does not end it."""
    served[:] = [KINDS, ConnectionFailedError("server", "GET", "lost"), answer]
    rig = Rig(end=400)
    await rig.run()
    assert rig.now == 33.0
    assert rig.swept == [3.0]
