"""The memory that lists take, measured in a process of its own."""

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer

PODS = 350
POD_BYTES = 1_400_000
MAX_MEGABYTES = 100
"""Two pages of 14 MB, which is 10 pods of the largest size, and what allocators keep."""

READER = """
import asyncio, re, sys
from pathlib import Path
from cpg_api.core.pod import Pod
from cpg_client.connection import Connection
from cpg_client.endpoint import Endpoint
from cpg_client.reflector import Reflector, Source
from cpg_client.resources import PODS

def peak():
    return int(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])

async def main():
    async with Connection(Endpoint(server=sys.argv[1])) as connection:
        source = Source(resource=PODS, kind=Pod, project=lambda pod: pod.metadata.name)
        reflector = Reflector(connection, source, lambda change: None)
        before = peak()
        running = asyncio.create_task(reflector.run())
        await reflector.wait_synced()
        running.cancel()
        print(len(reflector.objects), (peak() - before) // 1000)

asyncio.run(main())
"""


def pod(number: int) -> bytes:
    """Return a pod with an annotation that is as large as etcd takes."""
    name = f'"name": "web-{number}", "namespace": "a", "uid": "{number}", "resourceVersion": "7"'
    return f'{{"metadata": {{{name}, "annotations": {{"x": "{"x" * POD_BYTES}"}}}}, "spec": {{}}}}'.encode()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
async def test_a_list_of_large_pods_takes_little_memory(server: "FakeServer") -> None:
    """490 MB of pods are read page by page; a page of 500 items would be all of them."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            await asyncio.Event().wait()
        start = int(request.query.get("continue", "0"))
        end = min(start + int(request.query["limit"]), PODS)
        more = str(end) if end < PODS else ""
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await response.write(b'{"metadata": {"resourceVersion": "7", "continue": "%s"}, "items": [' % more.encode())
        for number in range(start, end):
            await response.write((b"," if number > start else b"") + pod(number))
        await response.write(b"]}")
        return response

    server.handles("GET", "/api/v1/pods", handle)
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READER, server.url, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await reader.communicate()
    count, megabytes = map(int, output.split())
    assert count == PODS
    assert megabytes < MAX_MEGABYTES
