"""The handlers that Kopf calls. An event goes from here through the view to the work queue, and no further.

::

    startup   take the lease, read the cluster, register handlers for the kinds that it serves
    login     share our credentials and certificates with Kopf
    event     take a group or Workload into the view; trees that may have changed go into the work queue
    validate  answer the webhook, where there is one
    probe     report readiness
    cleanup   send pending writes, give back the lease

Steps, and not handlers, decide what to write: a tree consists of many objects, and a reconcile covers all of them. Only
``on.event`` is used for objects: it adds no finalizer and no annotation to users' objects. ``kopf.index`` is not used:
its startup takes quadratic time.

Run it by ``cpg-operator``, or for development by ``kopf run -m cpg_operator.handlers --all-namespaces``.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import kopf

from cpg_api.scheduling.validation import summarize
from cpg_client.flavours import CRD
from cpg_client.resources import Resource
from cpg_operator.admission.server import REFUSED, WebhookServer
from cpg_operator.kopf_cli import run_from_environment
from cpg_operator.kopf_settings import configure
from cpg_operator.operator_run import OperatorRun

Kinds = Mapping[str, Mapping[type, Resource]]
WATCH_END_SECONDS = 5.0
"""How long a cancelled watch may take to end."""

WatchedKind = tuple[str, type]
"""Flavour and kind, the ``param`` of the event handlers."""


async def startup(*, memo: kopf.Memo, settings: kopf.OperatorSettings, **_: Any) -> None:
    """Take the lease and read the cluster. While another replica leads, Kopf waits here and watches nothing."""
    if "run" not in memo:
        memo.run = run_from_environment()
        memo.registry = kopf.get_default_registry()
    run: OperatorRun = memo.run
    configure(settings, scanning=not run.settings.namespaces)
    await run.start()
    if run.components is None:  # it has ended already: Kopf cancels this, and must not watch anything before
        await asyncio.Event().wait()
        return
    kinds = run.components.view.kinds
    watch(memo.registry, kinds)
    if (address := run.settings.webhook.address()) is not None:
        settings.admission.server = WebhookServer(address, Path(run.settings.webhook.certificates), run.metrics)
        validate(memo.registry, kinds)


async def cleanup(*, memo: kopf.Memo, **_: Any) -> None:
    """Send pending writes, give back the lease, and end the watches that are left.

    After a failure of one watch Kopf would close the session of the others first, and then wait for them for ever: each
    asks for a new login that never comes.
    """
    await memo.run.stop()
    left = {task for task in asyncio.all_tasks() if task.get_name().startswith("watcher for ")}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=WATCH_END_SECONDS)


async def login(*, memo: kopf.Memo, **_: Any) -> kopf.AiohttpSession:
    """Return a session with our credentials; Kopf asks again when they are refused."""
    session: kopf.AiohttpSession = memo.run.open_session()
    return session


async def probe(*, memo: kopf.Memo, **_: Any) -> str:
    """Return in words whether this replica is ready, for ``kopf run --liveness``."""
    readiness: str = memo.run.readiness()
    return readiness


async def observe(*, event: kopf.RawEvent, memo: kopf.Memo, param: Any = None, **_: Any) -> None:  # noqa: ANN401  # Kopf's protocol
    """Take an event into the view."""
    memo.run.components.events.take(*param, event)


def is_new(watched: WatchedKind, *, event: kopf.RawEvent, memo: kopf.Memo, **_: Any) -> bool:
    """Return whether the view lacks an event; Kopf skips the handler otherwise."""
    found: bool = memo.run.components.events.is_new(*watched, event)
    return found


async def review(
    *,
    memo: kopf.Memo,
    warnings: list[str],
    new: kopf.Body | None = None,
    old: kopf.Body | None = None,
    param: Any = None,  # noqa: ANN401  # Kopf's protocol
    **_: Any,
) -> None:
    """Refuse an object that nothing could make valid, and warn about one that is not valid yet."""
    found = memo.run.components.reviewer.review(param, new, old)
    warnings.extend(found.warnings)
    if found.refusals:
        raise kopf.AdmissionError(summarize(found.refusals), code=REFUSED)


def register(registry: kopf.OperatorRegistry) -> None:
    """Register the handlers that are called whatever the API server serves."""
    kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)(startup)
    kopf.on.cleanup(registry=registry)(cleanup)
    kopf.on.login(registry=registry)(login)
    kopf.on.probe(registry=registry, id="readiness")(probe)


def watch(registry: kopf.OperatorRegistry, kinds: Kinds) -> None:
    """Register a handler for each kind of each flavour.

    Kopf would warn at every start about kinds that are not served.
    """
    for flavour, served in kinds.items():
        for kind, resource in served.items():
            kopf.on.event(
                resource.group,
                resource.version,
                resource.plural,
                registry=registry,
                id=f"{flavour}-{resource.plural}",
                param=(flavour, kind),
                when=partial(is_new, (flavour, kind)),
            )(observe)


def validate(registry: kopf.OperatorRegistry, kinds: Kinds) -> None:
    """Register the webhook's handler for each kind of our flavour."""
    for kind, resource in kinds.get(CRD, {}).items():
        kopf.on.validate(
            resource.group,
            resource.version,
            resource.plural,
            registry=registry,
            id=f"review-{resource.plural}",
            operations=["CREATE", "UPDATE"],
            param=kind,
        )(review)


register(kopf.get_default_registry())
