"""A list of more namespaces than an HTTP client has connections by default: each has watches of its own."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.e2e.operator import conftest

from cpg_client.bulk_create import create_all
from cpg_client.resources import NAMESPACES

if TYPE_CHECKING:
    from tests.e2e.operator.conftest import Testbed
    from tests.e2e.operator.crashes.conftest import Operators

pytestmark = pytest.mark.e2e
SECONDS_BETWEEN_SWEEPS = (4.0, 15.0)
"""Seconds from readiness in which no sweep lists what the watches do not show: one comes at 3 s and one at 18 s."""
NAMES = [f"many-{number}" for number in range(130)]


async def test_trees_in_the_first_and_the_last_of_130_namespaces_get_a_status(
    operators: "Operators", record_property: Callable[..., None]
) -> None:
    """Those that exist at the start, and those that are created once it is ready."""
    connection = operators.testbed.connection
    await create_all(connection, [(NAMESPACES.path(), {"metadata": {"name": name}}) for name in NAMES])
    ends = [conftest.Testbed(connection, name) for name in (NAMES[0], NAMES[-1])]
    for testbed in ends:
        await testbed.group("before")
    began = time.monotonic()
    replica = await operators.start(namespaces=NAMES)
    await operators.until_leading(replica)
    record_property("seconds until ready", round(time.monotonic() - began, 1))

    async def health(testbed: "Testbed", name: str) -> object:
        return (await testbed.condition("PodGroup", name, "Healthy")).get("reason")

    await asyncio.sleep(SECONDS_BETWEEN_SWEEPS[0])
    for testbed in ends:
        await testbed.group("after")
    patience = SECONDS_BETWEEN_SWEEPS[1] - SECONDS_BETWEEN_SWEEPS[0]
    for testbed in ends:
        for name in ("before", "after"):
            await testbed.until("Pending", lambda testbed=testbed, name=name: health(testbed, name), patience)  # type: ignore[misc]
