"""Compare resource versions of one collection.

Kubernetes promises their order within a resource (KEP-5504), and all versions of the API server have kept to it: they
are numbers that grow. Versions of two resources are never compared here, because these may be in two etcds. Versions
that are no numbers, such as those of an aggregated API server, have no known order.
"""

from cpg_client.connection import Connection, Params
from cpg_client.errors import ClientError
from cpg_client.listing import pages


class VersionsWentBackError(ClientError):
    """A collection has an older version than before: etcd was restored from a backup."""

    def __init__(self, path: str, seen: str, present: str) -> None:
        super().__init__(
            f"the resource version of {path} went back from {seen} to {present}, as after the restore of a backup of"
            " etcd: what this process knows is void, and it has to start afresh"
        )


def is_older(version: str, other: str) -> bool:
    """Return whether a version is known to be older than another one of the same collection."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def is_at_least(version: str, other: str) -> bool:
    """Return whether a version is known to be another one of the same collection, or a later one."""
    return bool(version) and (version == other or is_older(other, version))


async def present_version(connection: Connection, path: str, params: Params) -> str:
    """Return the version of a collection at this moment, by a consistent read of one object.

    The read names no version, so the API server takes the present one from etcd, whatever its watch cache has.
    """
    async for page in pages(connection, path, params, limit=1):
        return page.resource_version
    raise AssertionError("a list has a page")  # pragma: no cover
