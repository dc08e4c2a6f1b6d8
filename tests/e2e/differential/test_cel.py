"""Our CEL evaluator and upstream's compiler give the same results, over a table and over random cases.

The suite plays 1,000 cases; ``make fuzz-cel`` plays 10,000 (``CEL_CASES``) from the seed ``CEL_SEED``, and writes a
result file. Where upstream fails, the text of the error need not be ours. What is refused here on purpose is counted.
"""

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import result_files
import yaml
from tests.e2e.differential.cel_cases import Case, Generator

from cpg_api.core.devices import Device
from cpg_engine.cel.errors import CelError, CostError, NotSupportedError
from cpg_engine.cel.library import FUNCTIONS
from cpg_engine.cel.library import REFUSED as REFUSED_NAMES
from cpg_engine.cel.macros import MACROS
from cpg_engine.cel.selectors import CompiledSelector
from cpg_lab import building

pytestmark = pytest.mark.e2e

CASES = int(os.environ.get("CEL_CASES", "1000"))
SEED = int(os.environ.get("CEL_SEED", "1"))
RESULTS = os.environ.get("CEL_RESULTS", "")
"""The folder for the result file; empty if the results are not kept."""
TABLE = Path(__file__).parents[2] / "engine" / "cel" / "selectors.yaml"
REFUSED = "not supported"
MAX_REFUSED = 0.01
"""The share of random cases that may be refused."""


@pytest.fixture(scope="module")
def celcheck() -> Path:
    """Build upstream's compiler."""
    return building.ensure(["celcheck"])["celcheck"]


def upstream(celcheck: Path, cases: Iterable[Case]) -> list[str]:
    """Return the verdict of each case, and a tabulator with the error's text."""
    lines = "\n".join(json.dumps(case._asdict()) for case in cases)
    run = subprocess.run([celcheck], input=lines, capture_output=True, text=True, check=True)  # noqa: S603 - built by us
    return run.stdout.split("\n")[:-1]


def ours(case: Case) -> str:
    """Return our verdict."""
    try:
        selector = CompiledSelector(case.expression)
    except CelError as error:
        return REFUSED if isinstance(error, NotSupportedError) else "compile error"
    try:
        return str(selector.matches(case.driver, msgspec.convert(case.device, Device))).lower()
    except NotSupportedError:
        return REFUSED
    except CostError:
        return "out of cost"
    except CelError:
        return "runtime error"


def differences(cases: Sequence[Case], found: Sequence[str], expected: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the first cases of which the verdicts differ."""
    triples = zip(cases, found, expected, strict=True)
    return [(case, our, their) for case, our, their in triples if our not in {REFUSED, their.partition("\t")[0]}][:5]


def test_functions_and_macros_are_upstreams(celcheck: Path) -> None:
    """Each is supported, or refused by its name. Operators and internal functions have other names."""
    listed = subprocess.run([celcheck, "names"], capture_output=True, text=True, check=True)  # noqa: S603 - built by us
    names = {*FUNCTIONS, *REFUSED_NAMES, "has", *(name for name, _ in MACROS)}
    assert set(filter(is_public, names)) == set(filter(is_public, listed.stdout.split()))


def is_public(name: str) -> bool:
    """Say whether an expression can call it by name; ``in`` is an operator."""
    return name[0].isalpha() and "@" not in name and name != "in"


def test_the_table_is_upstreams(celcheck: Path) -> None:
    """The unit tests compare it with our evaluator."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    rows = [row for section in table["cases"].values() for row in section.items()]
    cases = [Case(expression, table["driver"], table["device"]) for expression, _ in rows]
    verdicts = [str(verdict).lower() for _, verdict in rows]
    assert len(cases) > 400
    assert not differences(cases, verdicts, upstream(celcheck, cases))


def test_random_cases_have_the_same_result(celcheck: Path) -> None:
    """Each verdict is common enough to mean something."""
    measured = result_files.measured_code()
    generator = Generator(SEED)
    cases = [generator.case() for _ in range(CASES)]
    theirs, found = upstream(celcheck, cases), [ours(case) for case in cases]
    counts = Counter(found)
    print(f"{CASES} cases from the seed {SEED}: {dict(counts)}")  # noqa: T201 - of interest in a long run
    different = differences(cases, found, theirs)
    if RESULTS:
        figures = {"cases": CASES, "seed": SEED, "verdicts": dict(counts), "different": len(different)}
        result_files.write_result("cel", figures, measured=measured)
    assert not different
    assert counts[REFUSED] <= CASES * MAX_REFUSED
    assert all(counts[verdict] > CASES / 20 for verdict in ("true", "false", "compile error", "runtime error"))
