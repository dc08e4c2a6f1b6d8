"""The pages of the scheduler: metrics beside the probes, explanations and dumps on loopback alone."""

import asyncio
import socket
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import structlog

from cpg_client.process import ProcessContext
from cpg_engine.testing.builders import node, pod
from cpg_scheduler.pages import LOOPBACK, add_pages
from cpg_scheduler.settings import SchedulerSettings
from cpg_scheduler.testing.stage import Stage

Logged = list[MutableMapping[str, Any]]


def free_port() -> int:
    """Return a port that no process listens on."""
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def served(debug_port: int) -> AsyncIterator[tuple[ProcessContext[SchedulerSettings], Logged]]:
    """Serve the pages of a stage; give the process and what it has logged."""
    stage = Stage(node("n1"), pod("big", cpu=9))
    with structlog.testing.capture_logs() as logged:
        settings = SchedulerSettings(debug_port=debug_port)
        shell = ProcessContext(settings=settings, log=structlog.get_logger(), identity="me")
        async with asyncio.TaskGroup() as tasks:
            add_pages(shell, stage.cache, stage.queue, stage.preemption, stage.metrics, tasks)
            await asyncio.sleep(0.05)
            yield shell, logged
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()


async def ask(host: str, port: int, path: str) -> bytes:
    """Return the response to a request."""
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def addresses_listening(port: int) -> set[str]:
    """Return the local addresses, in hexadecimal, on which this machine listens on a port."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:  # noqa: PTH123  # a file of the kernel
            for fields in (line.split() for line in list(lines)[1:]):
                address, _, number = fields[1].partition(":")
                if int(number, 16) == port and fields[3] == "0A":
                    found.add(address)
    return found


async def test_explanations_and_dumps_are_served_on_loopback_alone() -> None:
    """Another pod cannot reach them, whatever a NetworkPolicy says."""
    port = free_port()
    async with served(port):
        assert addresses_listening(port) == {"0100007F"}
        assert b"Insufficient cpu" in await ask(LOOPBACK, port, "/debug/explain/pod/default/big")
        await asyncio.sleep(0.2)
        assert b'"schedulerName"' in await ask(LOOPBACK, port, "/debug/dump")
        assert b"404 Not Found" in await ask(LOOPBACK, port, "/metrics")


async def test_the_port_of_the_probes_has_no_explanations() -> None:
    """It is open to other pods, for metrics."""
    async with served(0) as (shell, _):
        assert shell.probes.answer("GET /debug/explain/ HTTP/1.1").status == 404
        assert shell.probes.answer("GET /debug/dump HTTP/1.1").status == 404
        assert shell.probes.answer("GET /metrics HTTP/1.1").status == 200


async def test_a_port_in_use_does_not_stop_the_scheduler() -> None:
    """It warns, and serves metrics."""
    with socket.socket() as other:
        other.bind((LOOPBACK, 0))
        other.listen()
        port = other.getsockname()[1]
        async with served(port) as (shell, logged):
            assert [(line["event"], line["port"]) for line in logged] == [("debug pages not served", port)]
            assert shell.probes.answer("GET /metrics HTTP/1.1").status == 200
