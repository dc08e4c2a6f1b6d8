"""One JSON object per line, whoever logs."""

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from cpg_client.logs import log_json


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Leave logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_kopfs_logs_look_as_ours(capsys: pytest.CaptureFixture[str]) -> None:
    """Level, time, words; its chatter below warnings is left out."""
    log_json("info")
    structlog.get_logger().info("ready", trees=3)
    logging.getLogger("kopf.reactor").info("chatter")
    logging.getLogger("kopf.reactor").warning("watch %s", "broke")
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["level"], ours["trees"]) == ("ready", "info", 3)
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("watch broke", "warning", "kopf.reactor")
    assert {"timestamp"} <= ours.keys() & theirs.keys()
