"""Gangs with claims of all kinds come and go while the scheduler is killed at random: no device is given twice.

``make fuzz-claims`` plays more and longer histories.
"""

import asyncio
import os
import time
from typing import TYPE_CHECKING

import pytest
from tests.e2e.devices.churn import GPUS_PER_NODE, Churn, offered

from cpg_lab import devices

if TYPE_CHECKING:
    from tests.e2e.devices.device_testbed import DeviceTestbed

SECONDS = float(os.environ.get("CHURN_SECONDS", "15"))
RUNS, SEED = int(os.environ.get("CHURN_RUNS", "1")), int(os.environ.get("CHURN_SEED", "1"))
SECONDS_UNTIL_RELEASED = 40.0
"""Includes the backoff of gangs, which waited for devices before."""

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("seed", range(SEED, SEED + RUNS))
async def test_no_device_is_given_twice(bed: "DeviceTestbed", seed: int) -> None:
    """After each change of a claim this is checked. In the end a gang gets all devices, so none is lost."""
    nodes, churn = await bed.offer("2 racks x 2 nodes, cpu=4"), Churn(bed, seed)
    templates = [bed.template(name, *requests) for name, requests in churn.templates.items()]
    slices = offered(nodes, is_newer=bed.is_native)
    await bed.create(*map(devices.create_request, [*slices, *templates]))
    async with bed.claims_watched() as problems:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not problems:
            pause = await churn.step()
            await asyncio.sleep(pause)
        await churn.finish()
        assert problems == [], churn.operations
    await bed.wait_for_devices("", 0, SECONDS_UNTIL_RELEASED)
    await bed.create(*bed.gang("all", len(nodes) * GPUS_PER_NODE, template="one"))
    await bed.wait_until_bound(len(nodes) * GPUS_PER_NODE)
    assert await bed.device_problems() == []
