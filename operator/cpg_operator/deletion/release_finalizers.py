"""The way out: take our finalizer off every group, for an operator that is about to go and will not come back.

Nothing but a list and a patch per group, so that it works whatever state the groups are in. An operator that still runs
would put the finalizers back. So it is waited until nobody holds the lease any more, and for long enough that a replica
which stands by would have taken it; then rounds go on until several in a row have found nothing to do, and if somebody
has taken the lease meanwhile, all begins anew. While rounds release what none has released before, they may take as
long as they need. Another release has another lease: its operator puts back what it looks after, and that is told.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pykube  # type: ignore[import-untyped]  # it has no types
import structlog

from cpg_api.decoding import decode
from cpg_client.resources import LEASES
from cpg_operator.deletion.rounds import GONE, TROUBLE, Round

CLEAN_ROUNDS = 3
FREE = 5.0
"""Seconds after which nobody stands by for a lease that nobody holds: who does takes it within two."""
PAUSE = 0.5
PATIENCE = 60.0
COMING_BACK = "finalizers keep coming back: stop the operator first (kubectl scale --replicas=0)"


class NotReleasedError(Exception):
    """Some groups may still have the finalizer, and why."""


class Lease(NamedTuple):
    """Where the operator that is to be gone has, or had, its lease."""

    namespace: str
    name: str


def release_finalizers(
    client: pykube.HTTPClient,
    namespaces: Sequence[str] = (),
    *,
    lease: Lease,
    patience: float = PATIENCE,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Release every group of both flavours, of these namespaces or of all.

    Raises ``NotReleasedError`` when somebody still leads, some are held again or cannot be released, or the server
    cannot be reached, after ``patience`` seconds in which nothing else was released.
    """
    log, deadline = structlog.get_logger(), clock() + patience
    clean, released = 0, set[str]()
    spec: Mapping[str, Any] | None = None
    while clean < CLEAN_ROUNDS:
        latest = Round(client)
        try:
            if spec is None or spec != _spec(client, lease):
                spec, clean = _when_nobody_leads(client, lease, deadline, sleep=sleep, clock=clock), 0
            latest.run(namespaces or (None,))
        except TROUBLE as error:
            latest.note("API server", error)
        log.info("released", groups=len(latest.released))
        if latest.trouble:
            log.warning("not released", error=latest.trouble)
        clean = clean + 1 if latest.is_clean else 0
        if not latest.released <= released:
            released |= latest.released
            deadline = clock() + patience
        elif not latest.is_clean and (latest.is_hopeless or clock() > deadline):
            raise NotReleasedError(latest.trouble or COMING_BACK)
        sleep(PAUSE)


def _when_nobody_leads(
    client: pykube.HTTPClient,
    lease: Lease,
    deadline: float,
    *,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> Mapping[str, Any]:
    """Return how the lease is once nobody holds it; by our own clock, since others' may be wrong."""
    seen, since = _spec(client, lease), clock()
    while seen:
        holder = seen.get("holderIdentity")
        if clock() - since >= (seen.get("leaseDurationSeconds", 0) + FREE if holder else FREE):
            break
        if holder and clock() > deadline:
            raise NotReleasedError(f"{holder} holds the lease {lease.namespace}/{lease.name}: stop the operator first")
        sleep(PAUSE)
        if (now := _spec(client, lease)) != seen:
            seen, since = now, clock()
    return seen


def _spec(client: pykube.HTTPClient, lease: Lease) -> Mapping[str, Any]:
    """Return how a lease is; nothing where there is none."""
    answer = client.get(version=LEASES.api_version, url=f"{LEASES.plural}/{lease.name}", namespace=lease.namespace)
    if answer.status_code == GONE:
        return {}
    client.raise_for_status(answer)
    spec: Mapping[str, Any] = decode(answer.content)["spec"]
    return spec
