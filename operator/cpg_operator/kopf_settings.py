"""How Kopf is set up: it watches and calls handlers, writes nothing, and never gives up."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import Any

import kopf

from cpg_api.scheduling.names import GROUP

OBJECTS_PER_CHUNK = 20
"""Objects of a page of Kopf's lists: an object has up to 1.5 MB."""


class EndlessBackoffs:
    """The seconds between attempts of a request, without an end: with these, Kopf never gives up a watch.

    An error that it gives up on would end all other watches as well.
    """

    def __iter__(self) -> Iterator[float]:
        """Start again for every request."""
        return chain((0.5, 1.0, 2.0, 4.0), repeat(5.0))


class NoDiffBase(kopf.DiffBaseStorage):
    """Stores no last-handled state.

    Kopf would keep it in annotations of users' objects. Our handlers compare with the view instead, and Kopf saves two
    deep copies of every object, a third of its CPU time.
    """

    def build(self, **_: Any) -> kopf.BodyEssence:
        """Return an empty state."""
        return kopf.BodyEssence()

    def fetch(self, **_: Any) -> None:
        """Return no state."""

    def store(self, **_: Any) -> None:
        """Store nothing."""


class NoProgress(kopf.StatusProgressStorage):
    """Stores no progress of handlers: none of ours is retried by Kopf."""

    def fetch(self, **_: Any) -> None:
        """Return no progress."""

    def store(self, **_: Any) -> None:
        """Store nothing."""

    def purge(self, **_: Any) -> None:
        """Remove nothing."""

    def touch(self, **_: Any) -> None:
        """Touch nothing."""


def configure(settings: kopf.OperatorSettings, *, scanning: bool) -> None:
    """Set Kopf up; ``scanning`` for namespaces and kinds takes rights on the whole cluster."""
    settings.posting.enabled = False  # the writer records events, and not one for each log line
    settings.scanning.disabled = not scanning
    settings.peering.standalone = True  # a lease decides which replica works
    # Not our finalizer: Kopf removes the one that it calls its own from objects that none of its handlers wants to
    # keep.
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.persistence.progress_storage = NoProgress()
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.networking.error_backoffs = EndlessBackoffs()
    settings.networking.enforce_retry_after = True
    settings.watching.chunk_size = OBJECTS_PER_CHUNK
    settings.watching.server_timeout = 60  # as in our own watches: a healthy server answers at least every minute
    settings.watching.inactivity_timeout = 120
    # An idle worker costs less than a new one for each event, but keeps its last event in memory.
    settings.queueing.idle_timeout = 2.0
    settings.process.ultimate_exiting_timeout = None  # Kopf may end and start again within one process


class NoiseFilter(logging.Filter):
    """Drops lines of Kopf that are warnings or errors to Kopf and neither to us.

    The webhook has refused an object, which is its purpose; or a standby was asked to stop during ``on.startup``, which
    lasts until it leads.
    """

    LOGGERS = ("kopf.objects", "kopf.activities.startup", "kopf._core.reactor.running")
    NOISE = (" failed permanently: ", " is cancelled. Will escalate.", "partially executed due to cancellation")

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is logged."""
        message = record.getMessage()
        return not any(noise in message for noise in self.NOISE)


@contextmanager
def less_noise() -> Iterator[None]:
    """Drop such lines while the block runs."""
    noise = NoiseFilter()
    for name in noise.LOGGERS:
        logging.getLogger(name).addFilter(noise)
    try:
        yield
    finally:
        for name in noise.LOGGERS:
            logging.getLogger(name).removeFilter(noise)
