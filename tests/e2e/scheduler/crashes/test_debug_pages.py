"""Debug pages and metrics under load: where they listen, what they cost others, and how they answer bad input."""

import asyncio
import socket
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import aiohttp
import pytest
from tests.e2e.scheduler.crashes.conftest import RACK

from cpg_client.probe_server import IO_TIMEOUT_SECONDS
from cpg_lab import probing
from cpg_lab.ports import LOOPBACK, free_port

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import Testbed

    from cpg_lab.replicas import Replica

pytestmark = pytest.mark.e2e
PENDING = 1000
SAMPLES = 40
CLIENTS = 5
SECONDS_BETWEEN_REQUESTS = 0.15
"""Of each client, so they send 30 a second together."""
UNREAD = 20
"""Connections with an answer that their client never reads."""
MAX_SLOWDOWN, MAX_SECONDS = 3.0, 0.5
"""Of nine in ten pods: as a ratio, and what is short anyway. Without a budget half of them wait for 4 s."""
MAX_SECONDS_OF_ONE = 10.0
"""Of a pod during whose attempt the one explanation is computed; it took 2 s, and without a budget 33 s."""
SCRAPES, SCRAPE_SECONDS = 100, 2.0
OTHER_LOOPBACK = "127.0.0.2"
LONG = "a" * 20_000
BAD_REQUESTS = {
    "GET /debug/ HTTP/1.1": (404, "there are /debug/dump, /debug/explain/"),
    "GET /debug/explain HTTP/1.1": (404, "there are"),
    "GET /debug/explain/crd HTTP/1.1": (404, "usage: /debug/explain/"),
    "GET /debug/explain/crd/a/b/c/../%00?x=y HTTP/1.1": (404, "usage: /debug/explain/"),
    "GET /debug/explain/crd/default/none HTTP/1.1": (404, "crd/default/none not found"),
    "GET /debug/explain/none/default/none HTTP/1.1": (404, "none/default/none not found"),
    "GET /debug/explain/pod/default/\xff\x01%zz HTTP/1.1": (404, "not found"),
    f"GET /debug/explain/pod/{LONG[:9000]}/{LONG[:5000]} HTTP/1.1": (404, "not found"),
    f"GET /debug/explain/?{LONG} HTTP/1.1": (431, "longer than 16384 bytes"),
    f"GET /debug/dump?{LONG} HTTP/1.1": (431, "longer than 16384 bytes"),
    "GET /debug/dump/none HTTP/1.1": (404, "there are"),
    "POST /debug/dump HTTP/1.1": (405, "only GET is answered"),
    "DELETE /debug/explain/ HTTP/1.1": (405, "only GET is answered"),
    "\x00\x01\x02": (405, "only GET is answered"),
}


async def raw(port: int, request: str, *, ends: bool = True) -> tuple[int, str]:
    """Send the head of a request; return status and text, after waits that the server asks for."""
    while True:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write((request + ("\r\n\r\n" if ends else "\r\nX-Slow: ")).encode("latin-1"))
        answer = (await asyncio.wait_for(reader.read(), 2 * IO_TIMEOUT_SECONDS)).decode("latin-1")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        status = int(answer.split(" ", 2)[1])
        if status != 429:
            return status, answer.partition("\r\n\r\n")[2]
        await asyncio.sleep(0.3)


def tenth_longest(seconds: list[float]) -> float:
    """Return the 90th percentile."""
    return statistics.quantiles(seconds, n=10)[-1]


async def bind_seconds(testbed: "Testbed", prefix: str) -> list[float]:
    """Create pods one after the other; return how long each waited for its node."""
    found = []
    async with testbed.watch_binds() as binds:
        for number in range(SAMPLES):
            began = time.monotonic()
            await testbed.create(testbed.pod(f"{prefix}-{number}"))
            await asyncio.wait_for(anext(binds), 60)
            found.append(time.monotonic() - began)
            await asyncio.sleep(0.05)
    return found


@asynccontextmanager
async def requests(url: str, port: int) -> AsyncIterator[list[int]]:
    """Ask for an explanation for as long as the block runs; return the statuses of the answers that are read."""
    statuses = list[int]()
    unread = [socket.socket() for _ in range(UNREAD)]
    for one in unread:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        one.connect((LOOPBACK, port))
        one.sendall(f"GET {url} HTTP/1.1\r\n\r\n".encode())

    async def ask(session: aiohttp.ClientSession) -> None:
        while True:
            with suppress(aiohttp.ClientError):
                async with session.get(f"http://{LOOPBACK}:{port}{url}") as answer:
                    await answer.read()
                    statuses.append(answer.status)
            await asyncio.sleep(SECONDS_BETWEEN_REQUESTS)

    async with aiohttp.ClientSession() as session:
        clients = [asyncio.create_task(ask(session)) for _ in range(CLIENTS)]
        try:
            yield statuses
        finally:
            for client in clients:
                client.cancel()
            for one in unread:
                one.close()


async def start(testbed: "Testbed") -> tuple["Replica", int]:
    """Start a replica with debug pages; return it and their port."""
    port = free_port()
    replica = testbed.start_replica("--no-leader-elect", debugPort=port)
    await testbed.wait_for_log(replica, "ready")
    return replica, port


async def test_explanations_of_a_large_gang_do_not_delay_other_pods(
    testbed: "Testbed", record_property: Callable[..., None]
) -> None:
    """30 requests a second for a pending gang of 1,000 different pods, and clients that never read their answer."""
    replica, port = await start(testbed)
    pods = (testbed.pod(f"gang-{number}", group="gang", cpu=f"{1000 + number}m") for number in range(PENDING))
    await testbed.create(testbed.group("gang", PENDING, key=RACK), *pods)
    await testbed.wait_for_message("gang", "room for", 60)
    await testbed.wait_for_pod_conditions(60)
    alone = await bind_seconds(testbed, "alone")
    url = f"/debug/explain/crd/{testbed.namespace}/gang"
    async with requests(url, port) as statuses:
        asked = await bind_seconds(testbed, "asked")
    figures = [round(value, 3) for one in (alone, asked) for value in (tenth_longest(one), max(one))]
    record_property("90th percentile and longest of the seconds until bound, alone and with requests", figures)
    assert tenth_longest(asked) < max(MAX_SLOWDOWN * tenth_longest(alone), MAX_SECONDS), figures
    assert max(asked) < MAX_SECONDS_OF_ONE, figures
    assert 429 in statuses
    assert set(statuses) <= {200, 429}
    assert replica.process.is_running


async def test_metrics_are_computed_at_most_once_a_second(testbed: "Testbed") -> None:
    """50 requests a second get few different pages, although some values change all the time."""
    replica, _ = await start(testbed)
    began, pages = time.monotonic(), set[str]()
    for number in range(SCRAPES):
        pages.add((await asyncio.to_thread(replica.get, "/metrics"))[1])
        await asyncio.sleep(max(began + (number + 1) * SCRAPE_SECONDS / SCRAPES - time.monotonic(), 0.0))
    assert 2 <= len(pages) <= time.monotonic() - began + 2


async def test_debug_pages_listen_on_one_address_and_refuse_bad_input(testbed: "Testbed") -> None:
    """They name objects of all namespaces. Every bad request gets an answer that says what is wrong."""
    replica, port = await start(testbed)
    metrics_port = int(replica.url.rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(OTHER_LOOPBACK, port)
    for path in ("/debug/explain/", "/debug/dump"):
        status, text = await asyncio.to_thread(replica.get, path)
        assert (status, "not found" in text, str(metrics_port) != str(port)) == (404, True, True)
        assert (await raw(port, f"GET {path} HTTP/1.1"))[0] == 200
    for request, (expected, words) in BAD_REQUESTS.items():
        status, text = await raw(port, request)
        assert (status, words in text) == (expected, True), (request[:60], status, text[:200])
    status, text = await raw(port, "GET /debug/explain/ HTTP/1.1", ends=False)
    assert (status, "has not ended within" in text) == (408, True)
    assert (await asyncio.to_thread(probing.get_plain, f"http://{LOOPBACK}:{port}/debug/explain/"))[0] in {200, 429}
    assert "Traceback" not in replica.process.output()
