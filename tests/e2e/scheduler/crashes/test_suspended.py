"""A leader that is suspended for longer than its lease, while a standby takes over."""

import asyncio
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.api_proxy import ApiProxy
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
IN_FLIGHT = 4


async def test_a_suspended_leader_writes_nothing_after_its_standby_took_over(
    testbed: "Testbed", api_proxy: "ApiProxy"
) -> None:
    """It has binds and status writes left from before; the proxy sees none of them when it resumes."""
    suspended = testbed.start_replica(proxy=api_proxy, bindsInFlight=IN_FLIGHT)
    await testbed.wait_for_log(suspended, "ready")
    standby = testbed.start_replica()
    await testbed.wait_until(lambda: "standing by" in standby.get("/readyz")[1])
    api_proxy.at(6, suspended.pause)
    await testbed.create(*testbed.tree("tree"), testbed.pod("huge", cpu="5"))
    await testbed.wait_for_log(standby, "ready")
    await testbed.create(*testbed.tree("next"))
    await testbed.wait_until_bound(32)
    written = api_proxy.writes
    assert 6 <= written < 16
    suspended.resume()
    assert await asyncio.to_thread(suspended.process.wait, 5)
    assert (suspended.process.exit_code, "the lease" in suspended.process.tail(2)) == (1, True)
    assert api_proxy.writes == written
    assert standby.log_lines("attempt failed") == []
