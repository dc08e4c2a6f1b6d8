"""Logs as JSON lines, from all loggers."""

import json
import logging
import time

import pytest
import structlog

from cpg_client.logs import SECONDS_BETWEEN_REPEATS, configure_logging


def test_logs_of_kopf_have_the_same_form(capsys: pytest.CaptureFixture[str]) -> None:
    """Level, time and message; its messages below warnings are left out."""
    configure_logging("info")
    structlog.get_logger().info("ready", trees=3)
    logging.getLogger("kopf.reactor").info("chatter")
    logging.getLogger("kopf.reactor").warning("watch %s", "broke")
    ours, theirs = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (ours["event"], ours["level"], ours["trees"]) == ("ready", "info", 3)
    assert (theirs["event"], theirs["level"], theirs["logger"]) == ("watch broke", "warning", "kopf.reactor")
    assert {"timestamp"} <= ours.keys() & theirs.keys()


def test_repeated_messages_of_a_library_are_dropped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are logged once a minute; another message is logged at once."""
    configure_logging("info")
    logger, now = logging.getLogger("kopf.clients"), 1000.0
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(time, "time_ns", lambda: int(now * 1e9), raising=False)
    for attempt in range(3):
        logger.error("attempt #%d failed: forbidden", attempt)
    logger.error("attempt #7 failed: lost")
    now += SECONDS_BETWEEN_REPEATS
    logger.error("attempt #9 failed: forbidden")
    said = [json.loads(line)["event"].partition(" failed")[0] for line in capsys.readouterr().err.splitlines()]
    assert said == ["attempt #0", "attempt #7", "attempt #9"]
