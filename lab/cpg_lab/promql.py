"""Alerts and expressions of Prometheus, evaluated over given series by our program promcheck, without a Prometheus."""

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from cpg_api.decoding import decode
from cpg_lab.errors import LabError


class Firing(Struct, frozen=True):
    """An alert that fired, and the seconds until it fired first."""

    alert: str
    after: float
    labels: dict[str, str]
    annotations: dict[str, str]


class Selector(Struct, frozen=True):
    """A metric that an expression reads, and the labels by which it selects."""

    metric: str
    labels: tuple[str, ...]


class PromcheckResult(Struct, frozen=True):
    """By history, the alerts that fired and the number of series of each expression; and what each expression reads."""

    fired: dict[str, list[Firing]]
    found: dict[str, dict[str, int]]
    selectors: dict[str, list[Selector]]


class Promcheck:
    """Prometheus' parser, engine and templates; see lab/go/promcheck."""

    def __init__(self, program: Path) -> None:
        """Use the program at this path."""
        self._program = program

    def evaluate(
        self,
        histories: Mapping[str, Mapping[str, str]],
        *,
        rules: Mapping[str, object] | None = None,
        expressions: Iterable[str] = (),
    ) -> PromcheckResult:
        """Evaluate rules and expressions over histories of two hours, scraped every half minute.

        A history has the values of each series, in the notation of promtool's tests.
        """
        request = {
            "rules": json.dumps(rules or {"groups": []}),
            "expressions": [*expressions],
            "histories": {
                name: {"every": "30s", "until": "2h", "series": series} for name, series in histories.items()
            },
        }
        encoded = msgspec.json.encode(request)
        done = subprocess.run([self._program], input=encoded, capture_output=True, check=False)
        if done.returncode:
            raise LabError(done.stderr.decode().strip())
        return decode(done.stdout, PromcheckResult)
