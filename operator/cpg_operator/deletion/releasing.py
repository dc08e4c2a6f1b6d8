"""The way out: take our finalizer off every group, for an operator that is about to go and will not come back.

Nothing but a list and a patch per group, so that it works whatever state the groups are in. An operator that still runs
would put the finalizers back. So it is waited until nobody holds the lease any more, and for long enough that a replica
which stands by would have taken it; then passes go on until several in a row have found nothing to do, and if somebody
has taken the lease meanwhile, all begins anew. Another release has another lease: its operator puts back what it looks
after, and that is told.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pykube  # type: ignore[import-untyped]  # it has no types
import structlog

from cpg_api.scheduling.names import FINALIZER
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import KINDS
from cpg_client.resources import LEASES, Resource
from cpg_operator.deletion.clients import CONNECTIONS

CLEAN_PASSES = 3
FREE = 5.0
"""Seconds after which nobody stands by for a lease that nobody holds: who does takes it within two."""
PAUSE = 0.5
PATIENCE = 60.0
PAGE = 500
"""Groups of one answer: a client that holds all groups of a large cluster at once needs gigabytes."""
GONE, CONFLICT = 404, 409
HOPELESS = frozenset({401, 403})
"""Statuses of a server that knows us, or does not, and will say the same again."""

TROUBLE = (pykube.exceptions.HTTPError, OSError, LookupError)
"""What requests raises is an OSError; pykube-ng trips over a refusal that does not say what it is."""

Kind = type[pykube.objects.NamespacedAPIObject]


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

    Raises ``NotReleasedError`` when somebody still leads, some are held again, or the server cannot be reached, after
    ``patience`` seconds.
    """
    log, deadline = structlog.get_logger(), clock() + patience
    clean, trouble = 0, ""
    spec: Mapping[str, Any] | None = None
    while clean < CLEAN_PASSES:
        try:
            if spec is None or spec != _spec(client, lease):
                spec, clean = _when_nobody_leads(client, lease, deadline, sleep=sleep, clock=clock), 0
            found = _release_once(client, namespaces or (None,))
        except TROUBLE as error:
            if getattr(error, "code", None) in HOPELESS:
                raise NotReleasedError(str(error)) from error
            found, trouble = 1, f"{type(error).__name__}: {error}"
            log.warning("not released", error=trouble)
        else:
            trouble = "finalizers keep coming back: stop the operator first (kubectl scale --replicas=0)"
            log.info("released", groups=found)
        clean = 0 if found else clean + 1
        if found and clock() > deadline:
            raise NotReleasedError(trouble)
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
    spec: Mapping[str, Any] = answer.json()["spec"]
    return spec


def _release_once(client: pykube.HTTPClient, namespaces: Sequence[str | None]) -> int:
    """Go once over all groups that are served; return how many were found with the finalizer."""
    found = 0
    with ThreadPoolExecutor(CONNECTIONS) as threads:
        for kind in _kinds(client):
            for namespace in namespaces:
                for page in _pages(client, kind, namespace):
                    held = [group for group in page if FINALIZER in group.metadata.get("finalizers", ())]
                    found += len(held)
                    list(threads.map(_release, held))
    return found


def _kinds(client: pykube.HTTPClient) -> Iterator[Kind]:
    """Yield the kinds of groups that are served."""
    for kinds in KINDS.values():
        for kind, resource in kinds.items():
            if kind is not Workload and _is_served(client, resource):
                yield pykube.object_factory(client, resource.api_version, resource.kind)


def _is_served(client: pykube.HTTPClient, resource: Resource) -> bool:
    answer = client.get(version=resource.api_version)
    if answer.status_code == GONE:
        return False
    client.raise_for_status(answer)
    return any(one["name"] == resource.plural for one in answer.json()["resources"])


def _pages(
    client: pykube.HTTPClient, kind: Kind, namespace: str | None
) -> Iterator[list[pykube.objects.NamespacedAPIObject]]:
    """Yield all objects of a kind, page by page: pykube-ng's own queries ask for everything at once."""
    token = ""
    while True:
        query = urlencode({"limit": PAGE, "continue": token})
        answer = client.get(version=kind.version, url=f"{kind.endpoint}?{query}", namespace=namespace)
        client.raise_for_status(answer)
        listed = answer.json()
        yield [kind(client, item) for item in listed["items"]]
        token = listed["metadata"].get("continue", "")
        if not token:
            return


def _release(group: pykube.objects.NamespacedAPIObject) -> None:
    """Take the finalizer off this very state of a group; one that has changed or gone is for the next pass."""
    left = [name for name in group.metadata["finalizers"] if name != FINALIZER]
    try:
        group.patch({"metadata": {"finalizers": left, "resourceVersion": group.metadata["resourceVersion"]}})
    except pykube.exceptions.HTTPError as error:
        if error.code not in {GONE, CONFLICT}:
            raise
