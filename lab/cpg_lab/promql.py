"""Rules and expressions of Prometheus, played over series without a Prometheus, by our program promcheck."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from cpg_api.decoding import decode
from cpg_lab.errors import LabError


class Firing(Struct, frozen=True):
    """An alert that fired, and after how many seconds for the first time."""

    alert: str
    after: float
    labels: dict[str, str]
    annotations: dict[str, str]


class Selector(Struct, frozen=True):
    """A metric that an expression reads, and the labels that its series must have."""

    metric: str
    labels: tuple[str, ...]


class PromcheckResult(Struct, frozen=True):
    """What fired and how many series each expression found, by history; and what each expression reads."""

    fired: dict[str, list[Firing]]
    found: dict[str, dict[str, int]]
    selectors: dict[str, list[Selector]]


class Promcheck:
    """Prometheus' parser, engine and templates; see lab/go/promcheck."""

    def __init__(self, program: Path) -> None:
        """Ask this program."""
        self._program = program

    def ask(
        self,
        histories: Mapping[str, Mapping[str, str]],
        *,
        rules: Mapping[str, object] | None = None,
        expressions: Iterable[str] = (),
    ) -> PromcheckResult:
        """Play rules and expressions over histories of two hours, scraped every half minute.

        A history is the values of each series, in the notation of promtool's tests.
        """
        question = {
            "rules": json.dumps(rules or {"groups": []}),
            "expressions": [*expressions],
            "histories": {
                name: {"every": "30s", "until": "2h", "series": series} for name, series in histories.items()
            },
        }
        asked = msgspec.json.encode(question)
        done = subprocess.run([self._program], input=asked, capture_output=True, check=False)
        if done.returncode:
            raise LabError(done.stderr.decode().strip())
        return decode(done.stdout, PromcheckResult)
