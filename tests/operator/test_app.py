"""When the view is compared with what is there, by virtual time."""

import asyncio
from typing import Any, cast

import pytest
import structlog

from cpg_client.connection import Connection
from cpg_client.flavours import KINDS
from cpg_client.process import ProcessContext
from cpg_client.resources import CPG_POD_GROUPS
from cpg_client.session_health import SessionHealth
from cpg_client.timing import Timing
from cpg_operator import app
from cpg_operator.admission.review import Reviewer
from cpg_operator.app import Operator
from cpg_operator.metrics import Facts, Metrics
from cpg_operator.settings import Settings


class Time:
    """Passes only by waiting; at some moments something happens, and at the last one it is over."""

    def __init__(self, shell: ProcessContext[Settings], *, end: float) -> None:
        """Begin at zero."""
        self.now, self.end = 0.0, end
        self.happens: dict[float, Any] = {}
        self._shell = shell
        self.timing = Timing(sleep=self._sleep, clock=lambda: self.now)

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        for moment in [one for one in self.happens if one <= self.now]:
            self.happens.pop(moment)()
        if self.now >= self.end:
            self._shell.stopping.set()
            await asyncio.Event().wait()


class Swept:
    """Notes when it was asked to compare, and what Kopf has been heard to do."""

    def __init__(self, time: Time) -> None:
        """Begin with nothing."""
        self.at: list[float] = []
        self._time = time
        self.sweeper = self.hearing = self
        self.session_health = SessionHealth([(CPG_POD_GROUPS, None)], lambda: time.now)

    async def sweep(self) -> int:
        """Find one object wrong."""
        self.at.append(self._time.now)
        return 1


@pytest.mark.parametrize("listed", [False, True])
async def test_a_sweep_follows_whenever_kopf_has_listed_anew(monkeypatch: pytest.MonkeyPatch, *, listed: bool) -> None:
    """Within the next look, and once; else only now and again after the first while. What it finds is counted."""

    async def flavours(*_: object) -> object:
        return KINDS

    monkeypatch.setattr(app, "served_flavours", flavours)
    shell = ProcessContext(settings=Settings(leader_elect=False), log=structlog.get_logger(), identity="me")
    time = Time(shell, end=400)
    metrics, swept = Metrics(), Swept(time)
    if listed:
        time.happens[100.0] = lambda: swept.session_health.record_data(CPG_POD_GROUPS.path(), listed=True)
    operator = Operator(cast("Connection", None), shell, Reviewer(metrics), metrics, time.timing)
    await operator._until_other_kinds(cast("Any", KINDS), cast("Any", swept))
    later = [round(moment) for moment in swept.at if moment > app.SETTLING]
    assert later == ([108] if listed else [333])
    page = metrics.page(Facts(states=(), queued=0, unwritten=0, age=0.0)).decode()
    assert f"cpg_operator_view_behind_total {len(swept.at)}.0" in page
