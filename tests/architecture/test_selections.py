"""Marks and folders of tests agree with the Makefile, which selects tests by both.

It collects only the files that it runs, because collecting all tests takes several seconds in every process.
"""

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


def marked(name: str) -> set[str]:
    """Return the test files that use a mark."""
    return {
        str(file.relative_to(ROOT)) for file in TESTS if re.search(rf"pytest\.mark\.{name}\b", file.read_text("utf-8"))
    }


def test_end_to_end_tests_are_those_of_their_folder() -> None:
    """`make e2e` collects tests/e2e alone, and every file there has the mark."""
    folder = {str(file.relative_to(ROOT)) for file in TESTS if file.is_relative_to(ROOT / "tests" / "e2e")}
    assert marked("e2e") == folder


def test_speed_is_tested_in_files_of_that_name() -> None:
    """`make unit` runs them alone, after all others."""
    speed = {str(file.relative_to(ROOT)) for file in (ROOT / "tests").glob("*/test_speed.py")}
    assert marked("speed") == speed != set()


def test_the_longest_scopes_exist() -> None:
    """A renamed file would otherwise run last, and a worker would end with it alone."""
    spec = importlib.util.spec_from_file_location("distribution", ROOT / "tests" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    distribution = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(distribution)
    paths = [Path(scope.split()[0]) for scope in distribution.LONGEST]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    names = re.findall(r"test_\(\?:([a-z|]+)\)", distribution.TOGETHER.pattern)
    files = {f"tests/e2e/chart/test_{name}.py" for name in "|".join(names).split("|")}
    assert [file for file in files if not (ROOT / file).exists()] == []
