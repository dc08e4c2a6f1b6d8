"""What Kopf is asked to do, and above all what it is not."""

from collections.abc import Sized
from itertools import islice
from typing import Any

import kopf
import pytest

from cpg_api.scheduling.names import FINALIZER
from cpg_client.endpoint import Endpoint
from cpg_client.flavours import KINDS
from cpg_operator.handlers import kopf_settings, registry_of
from cpg_operator.kopf_settings import NoDiffBase, NoProgress


def ignore(*_: object) -> None:
    """Take nothing."""


def unknown(*_: object) -> bool:
    """Know nothing."""
    return False


def test_what_is_known_is_no_news() -> None:
    """But for its end."""
    registry = registry_of(
        Endpoint(server="http://localhost"), KINDS, take=ignore, knows=lambda *found: found[2] == {"x": 1}
    )
    handler = next(one for one in registry._watching.get_all_handlers() if one.id == "crd-podgroups")
    assert handler.when is not None

    def is_news(event: str | None, metadata: dict[str, int]) -> bool:
        filtering: Any = handler.when
        return bool(filtering(event={"type": event, "object": {"metadata": metadata}}, name="a"))

    assert [is_news(None, {"x": 1}), is_news("MODIFIED", {"x": 1}), is_news("DELETED", {"x": 1})] == [
        False,
        False,
        True,
    ]
    assert is_news("MODIFIED", {"x": 2})


def test_kopf_watches_and_nothing_else() -> None:
    """Every kind of every flavour by plain events: nothing that would write, index, or poll."""
    registry = registry_of(Endpoint(server="http://localhost"), KINDS, take=ignore, knows=unknown)
    watched = {handler.id for handler in registry._watching.get_all_handlers()}
    assert watched == {
        f"{flavour}-{plural}"
        for flavour in ("crd", "native")
        for plural in ("podgroups", "compositepodgroups", "workloads")
    }
    for part in (registry._changing, registry._spawning, registry._indexing):
        assert not part.get_all_handlers()


async def test_news_are_handed_on_with_their_flavour_and_kind() -> None:
    """As Kopf calls the handler."""
    heard: list[tuple[Any, ...]] = []
    registry = registry_of(
        Endpoint(server="http://localhost"), KINDS, take=lambda *found: heard.append(found), knows=unknown
    )
    handler = next(one for one in registry._watching.get_all_handlers() if one.id == "crd-podgroups")
    await handler.fn(event={"type": "ADDED", "object": {"spec": {}}}, param=handler.param)  # type: ignore[misc, call-arg]
    ((flavour, kind, event, plain),) = heard
    assert (flavour, kind.__name__, event, plain) == ("crd", "PodGroup", "ADDED", {"spec": {}})


async def test_kopf_asks_as_we_do() -> None:
    """By a session of our own client's."""
    registry = registry_of(Endpoint(server="http://localhost", namespace="ns"), {}, take=ignore, knows=unknown)
    (handler,) = registry._activities.get_all_handlers()
    found = await handler.fn()  # type: ignore[misc, call-arg]
    assert isinstance(found, kopf.AiohttpSession)
    assert (found.server, found.default_namespace) == ("http://localhost", "ns")
    await found.aiohttp_session.close()


@pytest.mark.parametrize("scanning", [True, False])
def test_kopf_keeps_to_itself(*, scanning: bool) -> None:
    """No events, no peering, no annotations, no finalizer of ours; the whole cluster only where we may."""
    settings = kopf_settings(scanning=scanning)
    assert settings.scanning.disabled is not scanning
    assert not settings.posting.enabled
    assert settings.peering.standalone
    assert settings.persistence.finalizer != FINALIZER
    assert isinstance(settings.persistence.diffbase_storage, NoDiffBase)
    assert isinstance(settings.persistence.progress_storage, NoProgress)


def test_kopf_never_gives_a_request_up() -> None:
    """It has no number of attempts, every request begins anew, and none waits longer than our own watches do."""
    backoffs: Any = kopf_settings(scanning=True).networking.error_backoffs
    assert not isinstance(backoffs, Sized)
    for _ in range(2):
        waits = list(islice(backoffs, 1000))
        assert (waits[0], max(waits), len(waits)) == (0.5, 5.0, 1000)


def test_what_kopf_would_remember_is_forgotten() -> None:
    """Nothing is found, nothing written."""
    patch = kopf.Patch()
    body = kopf.Body({"metadata": {"name": "a"}, "spec": {"x": 1}})
    base, progress = NoDiffBase(), NoProgress()
    assert base.build(body=body) == {}
    base.store(body=body, patch=patch, essence={})
    progress.store(key="k", record={}, body=body, patch=patch)
    progress.purge(key="k", body=body, patch=patch)
    progress.touch(body=body, patch=patch, value="v")
    base.fetch(body=body)
    progress.fetch(key="k", body=body)
    assert dict(patch) == {}
