"""Sends the writes to claims for devices, several at once."""

import asyncio
from collections.abc import Callable, Iterable

from structlog.typing import FilteringBoundLogger

from cpg_api.core.devices import ResourceClaim
from cpg_api.parsing import Rejected, parse_object
from cpg_client.connection import STRATEGIC_MERGE_PATCH, Connection
from cpg_client.errors import ApiError, ClientError
from cpg_client.resources import RESOURCE_CLAIMS
from cpg_client.retrying import WatchBackoff
from cpg_scheduler.binding.claim_writes import ClaimRelease, ClaimWrite, named, release_write
from cpg_scheduler.binding.prebind import BACKOFF, PreBindError, is_final
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.cache.versions import version_of

MAX_REQUESTS_IN_FLIGHT = 64
"""Requests about claims; they do not count among the binds in flight."""
MAX_SECONDS_TO_RELEASE = 30.0
"""Seconds after which claims that cannot be released stay as they are: allocated, which the next decision sees."""


class ClaimWriter:
    """Writes claims, and waits until the watch shows what was written."""

    def __init__(
        self, connection: Connection, cache: ClusterCache, *, log: FilteringBoundLogger, backoff: WatchBackoff = BACKOFF
    ) -> None:
        """Start with nothing in flight; the lease is checked by the connection, before each write."""
        self._connection = connection
        self._cache = cache
        self._log = log
        self._backoff = backoff
        self._slots = asyncio.Semaphore(MAX_REQUESTS_IN_FLIGHT)
        self._in_doubt: dict[str, asyncio.Future[bytes]] = {}
        """The last writes, by the UID of the claim, that the watch may not have shown; some are under way."""

    def now(self) -> str:
        """Return the time of day of the API server."""
        return self._connection.timing.whole_seconds()

    async def write(self, key: str, uid: str, decide: Callable[[ResourceClaim], ClaimWrite | None]) -> None:
        """Send what ``decide`` says until that is nothing, and wait until the watch shows it."""
        failures = 0
        while True:
            known = self._cache.devices.claims.get(key)
            if (before := self._in_doubt.get(uid)) is not None:
                await asyncio.wait({before})
                known = None
            try:
                async with self._slots:
                    written = await self._write(key, known, decide)
            except ClientError as error:
                failures += 1
                if isinstance(error, ApiError) and is_final(error):
                    self._in_doubt.pop(uid, None)
                    raise PreBindError(str(error)) from error
                await self._connection.timing.sleep(self._backoff.wait(failures, error))
            else:
                await self._wait_seen(key, written)
                return

    def is_idle(self, uid: str) -> bool:
        """Return whether a pod waits for this scheduler, and is part of no batch of binds."""
        pod = self._cache.pods.get(uid)
        return pod is not None and self._cache.is_pending(pod) and uid not in self._cache.binds_in_flight

    def is_in_doubt(self, uid: str) -> bool:
        """Return whether the watch may not have shown a write of a claim."""
        return uid in self._in_doubt

    async def release(self, releases: Iterable[ClaimRelease], *, only_idle: bool = False) -> None:
        """Release claims as far as that is possible; with ``only_idle``, unless their pods are being bound by then."""
        try:
            async with asyncio.timeout(MAX_SECONDS_TO_RELEASE), asyncio.TaskGroup() as tasks:
                for one in releases:
                    tasks.create_task(self._release(one, only_idle=only_idle))
        except* TimeoutError:
            self._log.warning("claims not released", seconds=MAX_SECONDS_TO_RELEASE)

    async def _release(self, release: ClaimRelease, *, only_idle: bool) -> None:
        key, uid = release.allocation.claim, release.allocation.uid
        if uid not in self._in_doubt and key not in self._cache.devices.claims:
            return
        try:
            await self.write(
                key,
                uid,
                lambda claim: None if only_idle and not self._are_idle(release) else release_write(claim, release),
            )
        except PreBindError as error:
            self._log.debug("claim not released", claim=key, why=str(error))

    def _are_idle(self, release: ClaimRelease) -> bool:
        users = self._cache.devices.users(release.allocation.claim)
        return all(map(self.is_idle, users if release.deallocates else release.consumers))

    async def _write(
        self, key: str, known: ResourceClaim | None, decide: Callable[[ResourceClaim], ClaimWrite | None]
    ) -> ResourceClaim:
        namespace, name = key.split("/")
        claim = known or read_claim(key, await self._connection.get(RESOURCE_CLAIMS.path(namespace, name)))
        while (write := decide(claim)) is not None:
            path = RESOURCE_CLAIMS.path(namespace, name, write.subresource)
            sending = asyncio.ensure_future(self._connection.patch(path, write.body, STRATEGIC_MERGE_PATCH))
            sending.add_done_callback(ignore_error)
            self._in_doubt[claim.metadata.uid] = sending
            # A request that is cancelled may still have its effect, after a release that has not seen it.
            claim = read_claim(key, await asyncio.shield(sending))
        return claim

    async def _wait_seen(self, key: str, claim: ResourceClaim) -> None:
        """Wait until the watch shows this version of a claim, or that it is gone."""
        uid, version, claims = claim.metadata.uid, version_of(claim.metadata), self._cache.devices.claims
        with self._cache.versions.watching((uid,)) as change:
            while key in claims and claims[key].metadata.uid == uid and not self._cache.versions.is_seen(uid, version):
                change.clear()
                await change.wait()
        self._in_doubt.pop(uid, None)


def ignore_error(sent: asyncio.Future[bytes]) -> None:
    """Retrieve the error of a request for which no coroutine waits any more."""
    if not sent.cancelled():
        sent.exception()


def read_claim(key: str, data: bytes) -> ResourceClaim:
    """Return the claim of an answer."""
    found = parse_object(data, ResourceClaim)
    if isinstance(found, Rejected):
        raise PreBindError(f"{named(key)} cannot be read: {found.problems[0]}")
    return found
