"""Requests about claims for devices that fail at random."""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from tests.e2e.api_proxy import ApiProxy
    from tests.e2e.scheduler.crashes.conftest import CreateRequest, Testbed


async def bind_despite_failures(
    testbed: "Testbed", api_proxy: "ApiProxy", objects: "Sequence[CreateRequest]", pods: int
) -> None:
    """Create objects and wait until so many pods are bound; refusals for good end once they have dropped a batch."""
    choices = random.Random(1)  # noqa: S311 - a run can be repeated
    statuses = [*[0] * 8, 409, 429, 500, 503, 422]

    def refuse(request: web.Request) -> int:
        return choices.choice(statuses) if "/resourceclaims" in request.path else 0

    api_proxy.refuse = refuse
    replica = testbed.start_replica(proxy=api_proxy, backoff={"first": 0.1, "most": 0.5})
    await testbed.wait_for_log(replica, "ready")
    await testbed.create(*objects)
    await testbed.wait_until(lambda: replica.log_lines("binds dropped"))
    statuses.remove(422)
    await testbed.wait_until_bound(pods, 60)
