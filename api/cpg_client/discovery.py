"""Discover the version of a server, the resources that it serves, and whether it is ready.

Nothing is cached. Discovery runs at the start and when a CRD appears, and a stale answer then would be worse than a
second request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from cpg_client.answers import read_answer
from cpg_client.connection import Connection
from cpg_client.errors import ApiError, ConnectionFailedError, NotReadyError
from cpg_client.resources import Resource, group_path

T = TypeVar("T")

_SECONDS_BETWEEN_PROBES = 0.2


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The release of a server; ``minor`` may end in a plus sign."""

    major: str
    minor: str
    git_version: str


class _GroupVersion(msgspec.Struct, frozen=True, rename="camel"):
    group_version: str


class _ApiGroup(msgspec.Struct, frozen=True):
    versions: tuple[_GroupVersion, ...]


class _ApiGroupList(msgspec.Struct, frozen=True):
    groups: tuple[_ApiGroup, ...]


class _ApiResource(msgspec.Struct, frozen=True):
    name: str
    kind: str
    namespaced: bool


class _ApiResourceList(msgspec.Struct, frozen=True):
    resources: tuple[_ApiResource, ...] | None = None


async def server_version(connection: Connection) -> ServerVersion:
    """Return the release of the server."""
    return await _get(connection, "/version", ServerVersion, "a version")


async def group_versions(connection: Connection) -> frozenset[str]:
    """Return every ``group/version`` that is served, except the core group, which always is."""
    groups = (await _get(connection, "/apis", _ApiGroupList, "a list of groups")).groups
    return frozenset(version.group_version for group in groups for version in group.versions)


async def served_resources(connection: Connection, group: str, version: str) -> frozenset[Resource]:
    """Return the resources of a group-version without subresources; empty if it is not served."""
    try:
        answer = await _get(connection, group_path(group, version), _ApiResourceList, "a list of resources")
    except ApiError as error:
        if error.is_not_found:
            return frozenset()
        raise
    found = answer.resources or ()
    return frozenset(
        Resource(group, version, one.name, one.kind, namespaced=one.namespaced) for one in found if "/" not in one.name
    )


async def _get(connection: Connection, path: str, kind: type[T], expected: str) -> T:
    return read_answer(await connection.get(path), kind, request=f"GET {path}", expected=expected)


async def wait_ready(
    connection: Connection,
    timeout: float,  # noqa: ASYNC109  # its error tells the last answer
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Return once ``/readyz`` succeeds; raise ``NotReadyError`` after ``timeout`` seconds.

    Every other answer and every failure counts as not ready yet: a starting server refuses connections and answers 401,
    403 and 500. The time-out is an argument, rather than the caller's ``asyncio.timeout``, because the error needs the
    last answer, which is known only here.
    """
    last = "no answer"
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    await connection.get("/readyz")
                except (ApiError, ConnectionFailedError) as error:
                    last = _failed_checks(error)
                    await sleep(_SECONDS_BETWEEN_PROBES)
                else:
                    return
    except TimeoutError as error:
        raise NotReadyError(f"{connection.endpoint.server}: not ready within {timeout:g} s: {last}") from error


def _failed_checks(error: ApiError | ConnectionFailedError) -> str:
    """Return the failed checks of an answer that lists all checks, or the whole error."""
    lines = error.message.splitlines() if isinstance(error, ApiError) else []
    return ", ".join(line for line in lines if line.startswith("[-]")) or str(error)
