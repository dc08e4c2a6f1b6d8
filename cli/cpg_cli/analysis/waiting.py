"""The units that wait, in the order of the scheduling queue."""

from collections.abc import Iterator

import msgspec

from cpg_api.decoding import decode
from cpg_cli.analysis.recorded import recorded_attempt
from cpg_cli.analysis.standing import reason_of
from cpg_scheduler.cache.cluster import SINGLE_POD, ClusterCache
from cpg_scheduler.units import owner_of, queue_key_of

UNKNOWN = "?"


class QueueRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A unit that waits."""

    position: int
    root: str
    """The kind, namespace and name of the root, or of the pod."""
    owner: str = ""
    flavour: str = ""
    priority: int
    since: str = ""
    attempts: int | None = None
    """None where it is not known."""
    next_try: str = UNKNOWN
    reason: str = ""

    @property
    def namespace(self) -> str:
        """The namespace of the root."""
        return self.root.rpartition(" ")[2].partition("/")[0]


class QueuePage(msgspec.Struct, frozen=True):
    """The page of the scheduler that leads, as far as it is shown."""

    waiting: int = 0
    roots: tuple["QueuePageRow", ...] = ()


class QueuePageRow(msgspec.Struct, frozen=True, rename="camel"):
    """A row of that page."""

    root: str
    flavour: str = ""
    owner: str = ""
    place: int = 0
    priority: int = 0
    since: str = ""
    attempts: int = 0
    next_attempt: str = ""
    why: str = ""


def rows_of_leader(body: bytes) -> tuple[int, list[QueueRow]]:
    """Return how many units wait, and the first of them, from the page of the scheduler that leads."""
    page = decode(body, QueuePage)
    rows = [
        QueueRow(
            position=row.place,
            root=row.root,
            owner=row.owner,
            flavour=row.flavour,
            priority=row.priority,
            since=row.since,
            attempts=row.attempts,
            next_try=row.next_attempt,
            reason=row.why,
        )
        for row in page.roots
    ]
    return page.waiting, rows


def rows_of_cache(cache: ClusterCache) -> Iterator[QueueRow]:
    """Yield all units that wait, by priority and age; what only the scheduler remembers is as old as their status."""
    units = {cache.unit_of(pod) for pod in cache.pods.values() if cache.is_pending(pod)}
    keys = sorted(key for unit in units if (key := queue_key_of(cache, unit)) is not None)
    for position, key in enumerate(keys, start=1):
        attempt = recorded_attempt(cache, key.unit)
        yield QueueRow(
            position=position,
            root=str(key.unit.key),
            owner=owner_of(cache, key.unit),
            flavour="" if key.unit.flavour == SINGLE_POD else key.unit.flavour,
            priority=-key.importance,
            since=key.created,
            attempts=attempt.number if attempt is not None else None,
            reason=reason_of(cache, key.unit),
        )
