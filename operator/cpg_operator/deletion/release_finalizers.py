"""Removes our finalizer from every group, for an operator that is uninstalled.

It takes a list and a patch per group, whatever the state of the groups. A running operator would add the finalizers
again. So the command first waits until the lease is free, for long enough that a standby would have taken it. Then it
repeats rounds until several in a row have found nothing to do, and starts again if a replica takes the lease meanwhile.
Rounds that release further groups may take as long as they need. The operator of another release has another lease: it
adds its finalizers again, which is reported as an error.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pykube  # type: ignore[import-untyped]  # it has no types
import structlog

from cpg_api.decoding import decode
from cpg_client.resources import LEASES
from cpg_operator.deletion.rounds import NOT_FOUND, REQUEST_ERRORS, Round

CLEAN_ROUNDS = 3
FREE_LEASE_SECONDS = 5.0
"""After this time no replica stands by for a free lease: a standby takes it within two seconds."""
SECONDS_BETWEEN_ROUNDS = 0.5
MAX_SECONDS_WITHOUT_PROGRESS = 60.0
FINALIZERS_COME_BACK = "finalizers keep coming back: stop the operator first (kubectl scale --replicas=0)"


class NotReleasedError(Exception):
    """Some groups may still have the finalizer; the message says why."""


class LeaseName(NamedTuple):
    """The lease of the operator that is uninstalled."""

    namespace: str
    name: str


def release_finalizers(
    client: pykube.HTTPClient,
    namespaces: Sequence[str] = (),
    *,
    lease: LeaseName,
    patience: float = MAX_SECONDS_WITHOUT_PROGRESS,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Release every group of both flavours, of these namespaces or of all.

    Raise ``NotReleasedError`` where a replica still leads, finalizers come back or cannot be removed, or the server
    cannot be reached, after ``patience`` seconds without progress.
    """
    log, deadline = structlog.get_logger(), clock() + patience
    clean, released = 0, set[str]()
    spec: Mapping[str, Any] | None = None
    while clean < CLEAN_ROUNDS:
        latest = Round(client)
        try:
            if spec is None or spec != _spec(client, lease):
                spec, clean = _wait_until_free(client, lease, deadline, sleep=sleep, clock=clock), 0
            latest.run(namespaces or (None,))
        except REQUEST_ERRORS as error:
            latest.record_error("API server", error)
        log.info("released", groups=len(latest.released))
        if latest.error:
            log.warning("not released", error=latest.error)
        clean = clean + 1 if latest.is_clean else 0
        if not latest.released <= released:
            released |= latest.released
            deadline = clock() + patience
        elif not latest.is_clean and (latest.is_hopeless or clock() > deadline):
            raise NotReleasedError(latest.error or FINALIZERS_COME_BACK)
        sleep(SECONDS_BETWEEN_ROUNDS)


def _wait_until_free(
    client: pykube.HTTPClient,
    lease: LeaseName,
    deadline: float,
    *,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
) -> Mapping[str, Any]:
    """Return the spec of the lease once it is free, by our own clock: clocks of other machines may be wrong."""
    seen, since = _spec(client, lease), clock()
    while seen:
        holder = seen.get("holderIdentity")
        if clock() - since >= (
            seen.get("leaseDurationSeconds", 0) + FREE_LEASE_SECONDS if holder else FREE_LEASE_SECONDS
        ):
            break
        if holder and clock() > deadline:
            raise NotReleasedError(f"{holder} holds the lease {lease.namespace}/{lease.name}: stop the operator first")
        sleep(SECONDS_BETWEEN_ROUNDS)
        if (now := _spec(client, lease)) != seen:
            seen, since = now, clock()
    return seen


def _spec(client: pykube.HTTPClient, lease: LeaseName) -> Mapping[str, Any]:
    """Return the spec of a lease; an empty one where there is none."""
    answer = client.get(version=LEASES.api_version, url=f"{LEASES.plural}/{lease.name}", namespace=lease.namespace)
    if answer.status_code == NOT_FOUND:
        return {}
    client.raise_for_status(answer)
    spec: Mapping[str, Any] = decode(answer.content)["spec"]
    return spec
