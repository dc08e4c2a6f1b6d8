"""Kopf writes nothing, never gives up, and logs only what matters."""

import logging
from collections.abc import Sized
from itertools import islice
from typing import Any

import kopf
import pytest

from cpg_api.scheduling.names import FINALIZER
from cpg_operator.kopf_settings import NoDiffBase, NoProgress, configure, less_noise


def configured(*, scanning: bool = True) -> kopf.OperatorSettings:
    """Return Kopf's settings."""
    settings = kopf.OperatorSettings()
    configure(settings, scanning=scanning)
    return settings


@pytest.mark.parametrize("scanning", [True, False])
def test_kopf_leaves_no_trace_in_the_cluster(*, scanning: bool) -> None:
    """No events, no peering, no annotations, no finalizer of ours; it scans the cluster only where it may."""
    settings = configured(scanning=scanning)
    assert settings.scanning.disabled is not scanning
    assert not settings.posting.enabled
    assert settings.peering.standalone
    assert settings.persistence.finalizer != FINALIZER
    assert isinstance(settings.persistence.diffbase_storage, NoDiffBase)
    assert isinstance(settings.persistence.progress_storage, NoProgress)


def test_kopf_never_gives_up_a_request() -> None:
    """The number of attempts has no end, every request starts again, and no wait is longer than 5 s."""
    backoffs: Any = configured().networking.error_backoffs
    assert not isinstance(backoffs, Sized)
    for _ in range(2):
        waits = list(islice(backoffs, 1000))
        assert (waits[0], max(waits), len(waits)) == (0.5, 5.0, 1000)


def test_kopf_stores_no_state() -> None:
    """Neither the last state of objects nor the progress of handlers."""
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


def test_a_refused_object_is_not_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    """Nor the end of a standby; all other lines of Kopf are logged, and all again after the block."""
    logger = logging.getLogger("kopf.objects")
    with less_noise():
        logger.error("Handler 'review-podgroups' failed permanently: it is its own parent")
        logger.error("Handler 'crd-podgroups' failed with an exception and will ignore it")
    logger.error("Handler 'x' failed permanently: y")
    assert [message.partition(" failed ")[0] for message in caplog.messages] == [
        "Handler 'crd-podgroups'",
        "Handler 'x'",
    ]


def test_kopf_lists_page_by_page() -> None:
    """A page of twenty objects has at most thirty megabytes."""
    assert configured().watching.chunk_size == 20
