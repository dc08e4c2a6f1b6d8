"""Fixtures for all tests, and the distribution of end-to-end tests to workers."""

import logging
import re
import signal
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest
import structlog
from hypothesis import settings

settings.register_profile("without-deadline", deadline=None)
settings.load_profile("without-deadline")  # a busy machine can be slow at any example

TOGETHER = re.compile(
    r"(tests/e2e/api|tests/e2e/operator(?:/lifecycle)?)/test_\w+\.py::"
    r"|(tests/e2e/chart)/test_(?:guidance|images|installed)\.py::"
    r"|(tests/e2e/scheduler)/test_\w+\.py::\w+\[(crd|native)\b"
    r"|(tests/e2e/devices)/test_single_pods\.py::\w+\[(1\.\d+)\b"
    r"|(tests/e2e/workloads)/test_\w+\.py::\w+\[(1\.\d+)\b"
)
"""Files that share a cluster: those of a folder, or of a flavour or version in it."""
LONGEST = (
    "tests/e2e/chart",
    "tests/e2e/docs/test_commands.py",
    "tests/e2e/scheduler crd",
    "tests/e2e/scheduler native",
    "tests/e2e/operator/lifecycle",
    "tests/e2e/operator",
    "tests/e2e/api",
    "tests/e2e/test_lab.py",
    "tests/e2e/test_owner_status.py",
    "tests/e2e/test_workload_kinds.py",
    "tests/e2e/devices/test_gangs.py",
    "tests/e2e/chart/test_admission_policies.py",
    "tests/e2e/operator/crashes/test_kills.py",
    "tests/e2e/operator/crashes/test_memory.py",
    "tests/e2e/scheduler/crashes/test_evictions.py",
)
"""Scopes that take a minute or more, the longest first. They run first, so that no worker ends with one alone."""
FOLDER_FIXTURES: dict[pytest.FixtureDef[object], Any] = {}
"""The fixtures of folders that are set up, such as clusters, with the request of each."""


def scope_of(nodeid: str) -> str:
    """Return the scope of a test: tests of one scope run on one worker."""
    shared = TOGETHER.match(nodeid)
    return " ".join(filter(None, shared.groups())) if shared else nodeid.partition("::")[0]


@pytest.fixture(autouse=True)
def _logging_restored() -> Iterator[None]:
    """Restore logging: a program of ours that a test runs configures it for a stream that ends with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def pytest_configure() -> None:
    """Restore SIGINT: a shell starts background programs with SIGINT ignored, and our children would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Any:  # noqa: ANN401  # xdist has no types
    """Keep tests that share a cluster on one worker, where tests are distributed by file."""
    if config.getvalue("dist") != "loadfile":
        return None
    scheduling = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    scheduling._split_scope = scope_of
    return scheduling


def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    """Keep the fixtures of folders."""
    if fixturedef.scope == "package":
        FOLDER_FIXTURES[fixturedef] = request


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """Stop what the fixtures of a folder have started when the next test is elsewhere.

    Folders without ``__init__.py`` are no packages to pytest, which would stop it after the last test of the worker.
    """
    yield
    following = nextitem.nodeid if nextitem else ""
    for fixture in [one for one in FOLDER_FIXTURES if not following.startswith(one.baseid)]:
        fixture.finish(FOLDER_FIXTURES.pop(fixture))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest scopes first."""
    ranks = {scope: number for number, scope in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(scope_of(item.nodeid), len(ranks)))
