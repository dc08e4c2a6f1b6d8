"""A running writer over a connection that records its requests."""

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from cpg_client.connection import Connection
from cpg_client.timing import cancel_and_wait
from cpg_operator.metrics import OperatorMetrics
from cpg_operator.testing.connections import RecordingConnection
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import TreeKey
from cpg_operator.writing.creations import RecentCreations
from cpg_operator.writing.expectations import Expectations
from cpg_operator.writing.retries import RetryState
from cpg_operator.writing.sender import Sender
from cpg_operator.writing.writer import Writer


@pytest.fixture
def wire() -> RecordingConnection:
    """Return a connection."""
    return RecordingConnection()


@pytest.fixture
def queue() -> WorkQueue[TreeKey]:
    """Return a queue with a clock that stands still."""
    return WorkQueue(lambda: 0.0, quiet=0.25, longest=1.0)


@pytest.fixture
def metrics() -> OperatorMetrics:
    """Return counters."""
    return OperatorMetrics()


@pytest.fixture
def retries() -> RetryState[TreeKey]:
    """Return the failures of trees."""
    return RetryState()


@pytest.fixture
def expectations() -> Expectations:
    """Return what has been written."""
    return Expectations(RecordingConnection.timing.clock)


@pytest.fixture
async def writer(
    wire: RecordingConnection,
    queue: WorkQueue[TreeKey],
    metrics: OperatorMetrics,
    retries: RetryState[TreeKey],
    expectations: Expectations,
) -> AsyncIterator[Writer]:
    """Return a running writer."""
    found = Writer(
        Sender(cast("Connection", wire), instance="test"),
        view=cast("ClusterView", wire),
        queue=queue,
        expectations=expectations,
        creations=RecentCreations(wire.timing.clock),
        retries=retries,
        metrics=metrics,
        in_flight=4,
    )
    working = asyncio.create_task(found.run())
    yield found
    await cancel_and_wait(working)
