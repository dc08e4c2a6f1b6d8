"""What has to be ready before pods are bound: one plugin for each kind of thing that is allocated beside a node."""

from collections.abc import Collection, Iterable, Sequence
from typing import NoReturn, Protocol

from cpg_client.errors import ApiError
from cpg_client.retrying import WatchBackoff
from cpg_engine.decisions import DeviceAllocation
from cpg_scheduler.binding.batch import BindBatch
from cpg_scheduler.cache.cluster import ClusterCache

BACKOFF = WatchBackoff()


class PreBindError(Exception):
    """Something that was chosen for pods cannot be had."""


class PreBind(Protocol):
    """Makes one kind of allocation real, such as the volumes of claims."""

    @property
    def name(self) -> str:
        """Return the name that precedes its problems; ``status.reasons`` has the reason of pods that wait for it."""

    def unready(self, batch: BindBatch) -> Sequence[str]:
        """Return the objects, by kind and name, that are not ready for the pods of a batch; usually none."""

    async def prebind(self, batch: BindBatch) -> str:
        """Return as soon as all is ready for the pods of a batch, or the problem that prevents it."""

    async def release(self, batch: BindBatch, uids: Collection[str]) -> None:
        """Take back what was written for these pods of a batch, by UID, which are not bound."""

    async def deallocate(self, claims: Sequence[DeviceAllocation], pods: Collection[str]) -> None:
        """Take back what earlier attempts have allocated to claims that no pods but these, by UID, use."""


async def watch_pods(cache: ClusterCache, uids: Iterable[str]) -> NoReturn:
    """Raise as soon as one of these pods is no longer assumed."""
    watched = tuple(uids)
    with cache.versions.watching(watched) as change:
        while all(uid in cache.assumed for uid in watched):
            change.clear()
            await change.wait()
    raise PreBindError("one of its pods is gone or terminating")


def is_final(error: ApiError) -> bool:
    """Return whether repeating the request would give the same answer: a refusal, no conflict and no outage."""
    return 400 <= error.status < 500 and error.status not in {408, 409, 429}


def first_of(objects: Sequence[str]) -> str:
    """Return the first of some objects, and how many more there are."""
    more = f" and {len(objects) - 1} more" if len(objects) > 1 else ""
    return f"{objects[0]}{more}" if objects else "no claim"
