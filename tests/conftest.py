"""What all tests need of the process that they run in, and who runs which of those that take clusters."""

import logging
import re
import signal
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import structlog

TOGETHER = re.compile(
    r"(tests/e2e/api|tests/e2e/operator(?:/lifecycle)?)/test_\w+\.py::"
    r"|(tests/e2e/chart)/test_(?:guidance|images|installed)\.py::"
    r"|(tests/e2e/scheduler)/test_\w+\.py::\w+\[(crd|native)\b"
)
"""Tests whose files share a cluster: of a folder, or of a flavour in it."""
LONGEST = (
    "tests/e2e/chart",
    "tests/e2e/docs/test_commands.py",
    "tests/e2e/scheduler crd",
    "tests/e2e/scheduler native",
    "tests/e2e/operator/lifecycle",
    "tests/e2e/operator",
    "tests/e2e/api",
    "tests/e2e/test_lab.py",
    "tests/e2e/operator/crashes/test_kills.py",
    "tests/e2e/scheduler/crashes/test_evictions.py",
)
"""What takes a minute or more begins first, so that no worker is left alone with it at the end."""


def scope_of(nodeid: str) -> str:
    """Return what a test is run together with."""
    shared = TOGETHER.match(nodeid)
    return " ".join(filter(None, shared.groups())) if shared else nodeid.partition("::")[0]


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    """Leave logging as it was: what a program of ours has set up writes to a stream that ends with its test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def pytest_configure() -> None:
    """Undo an ignored Ctrl-C: programs started in the background by a shell inherit that, and so would our children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:  # noqa: ANN401  # xdist has no types
    """Give tests that share a cluster to one worker, where tests go file by file."""
    if config.getvalue("dist") != "loadfile":
        return None
    scheduling = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduling._split_scope = scope_of
    return scheduling


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put what takes long first."""
    ranks = {scope: number for number, scope in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(scope_of(item.nodeid), len(ranks)))
