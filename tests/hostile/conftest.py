"""Exceptions that a process catches and logs fail the tests."""

from collections.abc import Iterator

import pytest
import structlog
from tests.hostile.worlds import raise_mistakes


@pytest.fixture(autouse=True)
def checked_logs() -> Iterator[None]:
    """Raise what is logged as a mistake."""
    before = structlog.get_config()
    structlog.configure(processors=[raise_mistakes])
    yield
    structlog.configure(**before)
