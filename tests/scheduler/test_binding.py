"""Binding: everything that was decided is tried, and what fails is given back."""

import asyncio
from typing import cast

import pytest
import structlog

from cpg_client.connection import Connection
from cpg_client.errors import ApiError
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.binding import Binder, Order
from cpg_scheduler.metrics import Metrics
from cpg_scheduler.pending import Backoff, Pending
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.testing.wire import Wire


class Office:
    """A binder with three assumed pods to bind, and whoever waits for the outcome."""

    def __init__(self, wire: Wire, tasks: asyncio.TaskGroup, *, in_flight: int = 9) -> None:
        self.stage = Stage(node("n1"), *(pod(name, cpu=1) for name in "abc"))
        self.told: list[str] = []
        self.binder = Binder(
            cast("Connection", wire),
            self.stage.state,
            tasks,
            metrics=Metrics("", Pending(Backoff()), lambda: 0.0),
            log=structlog.wrap_logger(self.stage.log, processors=[]),
            in_flight=in_flight,
        )
        pods = {found.metadata.uid: found for found in map(self.stage.pod, "abc")}
        for uid in pods:
            self.stage.state.assume(uid, "n1")
        nodes = dict.fromkeys(pods, "n1")
        self.binder.start(
            Order(pods, nodes, placed=lambda: self.told.append("placed"), failed=lambda: self.told.append("failed"))
        )

    def assumed(self) -> list[str]:
        """Return the pods that count as bound."""
        pods = self.stage.state.pods.values()
        return sorted(found.metadata.name for found in pods if found.spec.node_name)


async def test_all_pods_of_an_order_are_bound() -> None:
    """Each by its own request, and who waits is told once."""
    wire = Wire()
    async with asyncio.TaskGroup() as tasks:
        office = Office(wire, tasks)
        await office.binder.drained()
    assert sorted(write.path for write in wire.writes) == [
        f"/api/v1/namespaces/default/pods/{name}/binding" for name in "abc"
    ]
    assert {write.body["target"]["name"] for write in wire.writes} == {"n1"}
    assert (office.told, office.assumed(), office.binder.under_way) == (["placed"], ["a", "b", "c"], 0)


@pytest.mark.parametrize(
    "error", [ApiError(409, "Conflict", "already bound"), ApiError(403, "Forbidden", "by a webhook")]
)
async def test_a_bind_that_fails_is_given_back(error: ApiError) -> None:
    """The others are bound all the same: a tree is completed, not undone."""
    wire = Wire()
    wire.error = lambda write: error if "/b/" in write.path else None
    async with asyncio.TaskGroup() as tasks:
        office = Office(wire, tasks)
        await office.binder.drained()
    assert (office.told, office.assumed()) == (["failed"], ["a", "c"])
    warning = next(call for call in office.stage.log.calls if call.method_name == "warning")
    assert warning.kwargs["pod"] == "default/b"


async def test_what_is_under_way_is_counted_by_orders() -> None:
    """Nothing is, only when the last of them is done."""
    wire = Wire()
    async with asyncio.TaskGroup() as tasks:
        office = Office(wire, tasks)
        last = Order({}, {}, placed=lambda: office.told.append("empty"), failed=lambda: None)
        office.binder.start(last)
        assert office.binder.under_way == 2
        await office.binder.drained()
        assert office.binder.under_way == 0
    assert office.told == ["empty", "placed"]


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    """The API server serves others, too; what is under way is known until the last has come back."""
    wire = Wire()
    wire.open.clear()
    async with asyncio.TaskGroup() as tasks:
        office = Office(wire, tasks, in_flight=2)
        for _ in range(5):
            await asyncio.sleep(0)
        assert (office.binder.under_way, wire.in_flight) == (1, 2)
        waiting = tasks.create_task(office.binder.drained())
        await asyncio.sleep(0)
        assert not waiting.done()
        wire.open.set()
    assert (len(wire.writes), wire.most_in_flight, office.binder.under_way) == (3, 2, 0)
