"""Readiness checks over HTTP, through ``cpg_client``.

The lab is blocking code that coroutines use as well, such as tests of the scheduler. No second event loop may run in
their thread, so every call runs in a thread of its own.
"""

import asyncio
import urllib.error
import urllib.request
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from cpg_client.connection import Connection, ConnectionSettings
from cpg_client.endpoint import Credentials, Endpoint
from cpg_client.errors import ApiError, ConnectionFailedError
from cpg_client.retrying import RetryPolicy

T = TypeVar("T")

_ONE_ATTEMPT = ConnectionSettings(
    total_timeout=5.0, connect_timeout=1.0, retries=RetryPolicy(attempts=1), user_agent="cpg-lab"
)


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, whether or not this thread has an event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def unready_reason(url: str, path: str, *, ca_file: Path | None, token: str | None) -> str | None:
    """Send one request; return None if it succeeded, else the error."""
    endpoint = Endpoint(server=url, ca=ca_file, credentials=Credentials(token=token))
    return run_blocking(_get_through_client(endpoint, path))


def get_plain(url: str) -> tuple[int, str]:
    """Send one plain request to a process of this machine; return status and body, or 0 and the error."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - on loopback, where we started it
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refusal:
        return refusal.code, refusal.read().decode()
    except OSError as error:
        return 0, str(error)


async def _get_through_client(endpoint: Endpoint, path: str) -> str | None:
    try:
        async with Connection(endpoint, _ONE_ATTEMPT) as connection:
            await connection.get(path)
    except ConnectionFailedError as problem:
        return problem.why
    except ApiError as problem:
        return f"{problem.status} {problem.message}"
    return None
