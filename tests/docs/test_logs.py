"""The page of the logs has exactly the events and keys that the code logs."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "logs.md").read_text("utf-8")
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
SHELLS = {"Scheduler": "scheduler/cpg_scheduler", "Operator": "operator/cpg_operator"}
_ROW = re.compile(r"^\| `(?P<event>[^`]+)` \| (?P<keys>[^|]+) \|", re.MULTILINE)


def logged(folder: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield each event that a package logs, with its keys."""
    for path in folder.rglob("*.py"):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_logging(node.func):
                keys = {"exception" if one.arg == "exc_info" else one.arg for one in node.keywords if one.arg}
                yield from ((event, keys) for event in _events(node.args[:1]))


def _is_logging(called: ast.Attribute) -> bool:
    """Return whether a call writes a log line; `parser.error` does not."""
    return called.attr in LEVELS and not (isinstance(called.value, ast.Name) and called.value.id == "parser")


def _events(first: list[ast.expr]) -> Iterator[str]:
    for one in first:
        options = [one.body, one.orelse] if isinstance(one, ast.IfExp) else [one]
        yield from (word.value for word in options if isinstance(word, ast.Constant) and isinstance(word.value, str))


def documented(title: str) -> dict[str, set[str]]:
    """Return the events in a section of the page, with their keys."""
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return {row["event"]: set(re.findall(r"`(\w+)`", row["keys"])) for row in _ROW.finditer(section)}


@pytest.mark.parametrize(("title", "folder"), SHELLS.items())
def test_the_page_has_every_log_event(title: str, folder: str) -> None:
    """Every event is on the page with all its keys, and no other event is."""
    expected = documented(title) | documented("Both")
    found = [*logged(ROOT / folder), *logged(ROOT / "api" / "cpg_client")]
    assert [(event, keys) for event, keys in found if event not in expected or not keys <= expected[event]] == []
    assert documented(title).keys() <= {event for event, _ in found}


def test_events_under_both_are_logged_by_both_processes() -> None:
    """An event of one process is in the section of that process."""
    client = {event for event, _ in logged(ROOT / "api" / "cpg_client")}
    for folder in SHELLS.values():
        assert documented("Both").keys() <= {event for event, _ in logged(ROOT / folder)} | client


def test_log_events_in_alerts_exist() -> None:
    """An alert or its runbook names only events that are on the page."""
    text = " ".join((ROOT / "charts" / "kube-cpg" / "files" / "alerts.yaml").read_text("utf-8").split())
    named = set(re.findall(r"`([a-z]+(?: [a-z]+)+)`", text))
    assert named
    assert named <= documented("Both").keys() | documented("Scheduler").keys() | documented("Operator").keys()
