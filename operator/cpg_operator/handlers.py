"""What Kopf is asked to watch and how it is set up: registration only.

The handler takes what is so into the view; what should be done about it is decided by the steps. Only ``on.event`` is
used: it adds no finalizer and no annotation to anybody's object and writes nothing. ``kopf.index`` is never used: its
start is quadratic.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Any

import kopf

from cpg_api.scheduling.names import GROUP
from cpg_client.endpoint import Endpoint
from cpg_client.resources import Resource
from cpg_client.session_health import SessionHealth
from cpg_client.shared_session import open_shared_session
from cpg_operator.kopf_settings import NoDiffBase, NoProgress

Take = Callable[[str, type, str | None, Any], None]
"""Takes an event: flavour, kind, what has happened (None: found at a listing), and the plain object."""


Knows = Callable[[str, type, Mapping[str, Any]], bool]
"""Tells by flavour, kind and plain metadata whether this very state is known."""


class Endless:
    """The waits of a request that fails, for which there is no last one: with these, Kopf never gives a watch up.

    Whatever it gives up ends all of it, the watches that fare well too.
    """

    def __iter__(self) -> Iterator[float]:
        """Begin anew with every request."""
        return chain((0.5, 1.0, 2.0, 4.0), repeat(5.0))


def registry_of(
    endpoint: Endpoint,
    kinds: Mapping[str, Mapping[type, Resource]],
    *,
    take: Take,
    knows: Knows,
    session_health: SessionHealth | None = None,
) -> kopf.OperatorRegistry:
    """Return what Kopf has to watch: every group and Workload of every flavour that is served.

    What is known is nearly always the answer to a write of ours; two thirds of all events are, and spared the handler.
    """
    registry = kopf.OperatorRegistry()

    async def login(**_: object) -> kopf.AiohttpSession:
        session = open_shared_session(endpoint, session_health=session_health)
        return kopf.AiohttpSession(
            server=endpoint.server, default_namespace=endpoint.namespace, aiohttp_session=session
        )

    async def seen(*, event: kopf.RawEvent, param: Any = None, **_: Any) -> None:  # noqa: ANN401  # Kopf's own signature
        param(event["type"], event["object"])

    def is_news(flavour: str, kind: type, *, event: kopf.RawEvent, **_: Any) -> bool:  # likewise
        return event["type"] == "DELETED" or not knows(flavour, kind, event["object"]["metadata"])

    kopf.on.login(registry=registry)(login)
    for flavour, there in kinds.items():
        for kind, one in there.items():
            watching = kopf.on.event(
                one.group,
                one.version,
                one.plural,
                registry=registry,
                id=f"{flavour}-{one.plural}",
                param=partial(take, flavour, kind),
                when=partial(is_news, flavour, kind),
            )
            watching(seen)
    return registry


def kopf_settings(*, scanning: bool) -> kopf.OperatorSettings:
    """Return how Kopf works here; ``scanning`` for namespaces takes rights on the whole cluster."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # events are told by the door, once, and not per log line
    settings.scanning.disabled = not scanning
    settings.peering.standalone = True  # a lease decides who works
    # Not our finalizer: what Kopf calls its own it takes off every object that none of its handlers wants to keep.
    settings.persistence.finalizer = f"{GROUP}/unused"
    settings.persistence.progress_storage = NoProgress()
    settings.persistence.diffbase_storage = NoDiffBase()
    settings.networking.error_backoffs = Endless()
    settings.networking.enforce_retry_after = True
    settings.watching.server_timeout = 60  # so that a healthy server is heard of every minute, as by our own watches
    settings.watching.inactivity_timeout = 120
    settings.queueing.idle_timeout = 10.0  # a worker that waits costs less than one that is made for each event
    settings.process.ultimate_exiting_timeout = None  # Kopf is a thread of ours, not its own process
    return settings
