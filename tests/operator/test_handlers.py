"""Which handlers Kopf gets, and above all which not; what each of them does is shown by ``test_app``."""

from types import SimpleNamespace
from typing import Any

import kopf
import pytest

from cpg_api.admission import Review
from cpg_client.endpoint import Endpoint
from cpg_client.flavours import KINDS, NATIVE
from cpg_client.shared_session import open_shared_session
from cpg_operator import handlers

REFUSAL = Review(refusals=("it is its own parent", "it is too deep"), warnings=("there is no Workload",))


@pytest.fixture
def registry() -> kopf.OperatorRegistry:
    """Return a registry with all handlers."""
    registry = kopf.OperatorRegistry()
    handlers.register(registry)
    handlers.watch(registry, KINDS)
    handlers.validate(registry, KINDS)
    return registry


def test_objects_are_watched_and_nothing_else(registry: kopf.OperatorRegistry) -> None:
    """Every kind of every flavour by plain events: no handler that would write, index, or poll."""
    assert {handler.id for handler in registry._watching.get_all_handlers()} == {
        f"{flavour}-{plural}"
        for flavour in ("crd", "native")
        for plural in ("podgroups", "compositepodgroups", "workloads")
    }
    for part in (registry._changing, registry._spawning, registry._indexing):
        assert not part.get_all_handlers()


def test_activities_are_those_of_a_life_cycle(registry: kopf.OperatorRegistry) -> None:
    """Kopf's default registry has the same, for ``kopf run``; handlers of objects are added once kinds are known."""
    default = kopf.get_default_registry()
    for one in (registry, default):
        activities = [str(handler.activity) for handler in one._activities.get_all_handlers()]
        assert activities[-4:] == ["startup", "cleanup", "authentication", "probe"]
    assert not default._watching.get_all_handlers()


def test_the_webhook_reviews_our_own_flavour(registry: kopf.OperatorRegistry) -> None:
    """Where only the native one is served, there is no handler."""
    found = {handler.id: handler for handler in registry._webhooks.get_all_handlers()}
    assert found.keys() == {"review-podgroups", "review-compositepodgroups", "review-workloads"}
    assert {handler.selector.group for handler in found.values() if handler.selector} == {"scheduling.cpg.dev"}
    other = kopf.OperatorRegistry()
    handlers.validate(other, {NATIVE: KINDS[NATIVE]})
    assert not other._webhooks.get_all_handlers()


async def test_a_review_refuses_and_warns() -> None:
    """With the code that the API server uses for objects that break the rules of their schema."""
    asked: list[Any] = []

    def review(*request: Any) -> Review:  # as Kopf calls it
        asked.append(request)
        return REFUSAL if len(asked) == 1 else Review()

    components = SimpleNamespace(reviewer=SimpleNamespace(review=review))
    memo, warnings = kopf.Memo(run=SimpleNamespace(components=components)), list[str]()
    with pytest.raises(kopf.AdmissionError, match="it is its own parent") as caught:
        await handlers.review(memo=memo, warnings=warnings, new=None, param=int)
    assert (caught.value.code, warnings) == (422, ["there is no Workload"])
    await handlers.review(memo=memo, warnings=warnings, new=None, param=int)
    assert asked == [(int, None, None)] * 2


async def test_kopf_shares_our_session_and_readiness() -> None:
    """It asks for both by its own handlers."""
    session = kopf.AiohttpSession(server="s", aiohttp_session=open_shared_session(Endpoint(server="http://localhost")))
    run = SimpleNamespace(open_session=lambda: session, readiness=lambda: "ok")
    assert await handlers.login(memo=kopf.Memo(run=run)) is session
    assert await handlers.probe(memo=kopf.Memo(run=run)) == "ok"
    await session.aiohttp_session.close()
