"""An operator with a wrong clock: times are those of the API server, so no partial tree is released early."""

import asyncio
import datetime as dt
from typing import TYPE_CHECKING

import pytest

from cpg_api.scheduling.names import EVENT_RELEASED
from cpg_api.scheduling.partial_release import PARTIAL, RELEASE_ANNOTATION

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Testbed
    from tests.e2e.operator.crashes.conftest import Operators

pytestmark = pytest.mark.e2e
CLOCK_AHEAD = """
import sys, time

right = time.time
time.time = lambda: right() + 2 * 3600

from cpg_operator.__main__ import main

sys.exit(main())
"""
"""An operator whose local clock is two hours ahead."""


async def partial_group(testbed: "Testbed", name: str) -> str:
    """Create a group below its minimum that is to be released after ten minutes; return when it was created."""
    await testbed.group(name, gang=2, annotations={RELEASE_ANNOTATION: "600s"})
    await testbed.pod(f"{name}-0", name, node="n1")
    await testbed.running(f"{name}-0")
    created: str = (await testbed.get("PodGroup", name))["metadata"]["creationTimestamp"]
    return created


async def partial_since(testbed: "Testbed", name: str) -> str:
    """Return since when a group is partial."""
    found: str = (await testbed.condition("PodGroup", name, PARTIAL)).get("lastTransitionTime", "")
    return found


async def test_a_clock_that_is_ahead_releases_no_partial_tree_early(operators: "Operators") -> None:
    """A first operator has reported the status; the next one has the wrong clock, also when it writes conditions."""
    testbed = operators.testbed
    right = await operators.start()
    await partial_group(testbed, "old")
    await operators.until("it is partial", lambda: partial_since(testbed, "old"))
    right.process.terminate()
    assert await asyncio.to_thread(right.process.wait, 10)
    wrong = await operators.start(program=CLOCK_AHEAD)
    await operators.until_leading(wrong)
    created = await partial_group(testbed, "new")
    await operators.until("it is partial", lambda: partial_since(testbed, "new"))
    seconds = dt.datetime.fromisoformat(await partial_since(testbed, "new")) - dt.datetime.fromisoformat(created)
    assert abs(seconds.total_seconds()) < 60
    assert "deletionTimestamp" not in (await testbed.get("Pod", "old-0"))["metadata"]
    assert await testbed.events(EVENT_RELEASED) == []
