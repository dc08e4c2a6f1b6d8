"""A proxy before the API server that asks for a wait of a day: other writes go on, and the client asks again soon."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cpg_client.resources import PODS

if TYPE_CHECKING:
    from aiohttp import web
    from tests.e2e.api_proxy import ApiProxy
    from tests.e2e.scheduler.crashes.conftest import Testbed

pytestmark = pytest.mark.e2e
A_DAY = "86400"
MAX_WAIT = 3.0
SHORT_LIMIT = f"""
import sys
from cpg_client import errors

errors.MAX_RETRY_AFTER_SECONDS = {MAX_WAIT}
from cpg_scheduler.__main__ import main

sys.exit(main())
"""
"""A scheduler that waits for seconds, as it does for a minute otherwise."""
REFUSED_ONCE: dict[str, Callable[["web.Request"], bool]] = {
    "the list of nodes": lambda request: request.path == "/api/v1/nodes" and "watch" not in request.query,
    "the watch of pods": lambda request: request.path == "/api/v1/pods" and "watch" in request.query,
    "a status": lambda request: request.path.endswith("/pods/huge/status"),
    "a bind": lambda request: request.path.endswith("/pods/throttled/binding"),
}


class Throttle:
    """Refuses the first request of each of these kinds."""

    def __init__(self) -> None:
        """Refuse nothing yet."""
        self.left = dict(REFUSED_ONCE)

    def __call__(self, request: "web.Request") -> int:
        """Return the status of a request, or 0."""
        found = next((name for name, matches in self.left.items() if matches(request)), None)
        if found is not None:
            del self.left[found]
        return 0 if found is None else 429


async def test_a_wait_of_a_day_is_cut_and_delays_no_other_write(testbed: "Testbed", api_proxy: "ApiProxy") -> None:
    """A list, a watch, a bind and a status are refused once each."""
    api_proxy.retry_after, api_proxy.refuse = A_DAY, (throttle := Throttle())
    replica = testbed.start_replica("--no-leader-elect", program=SHORT_LIMIT, proxy=api_proxy)
    await testbed.wait_for_log(replica, "ready")
    await testbed.create(testbed.pod("huge", cpu="5"))
    await testbed.wait_until(lambda: "a status" not in throttle.left)
    began = time.monotonic()
    await testbed.create(testbed.pod("throttled"), testbed.pod("other"), *testbed.tree("tree"))
    await testbed.wait_until_bound(17, MAX_WAIT)
    assert not (await testbed.pod_nodes())["throttled"], "it was bound before the server allowed it"
    assert "huge" not in await testbed.condition_messages(PODS)
    await testbed.wait_until_bound(18)
    assert time.monotonic() - began >= MAX_WAIT
    await testbed.wait_for_message("huge", "Insufficient cpu")
    assert throttle.left == {}
