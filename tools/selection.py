"""Which unit tests concern a change: a pure mapping from changed files to arguments of pytest.

Tests mirror the tree, so a source file leads to the test file of its name in the mirrored folder. Where there is none,
the tests that import the module are taken, and where there are none either, the nearest mirrored folder. The tests of
the architecture always run. The mapping may miss a test; `make unit` runs all of them.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

MIRRORS = {
    "api/cpg_api": "tests/api",
    "api/cpg_client": "tests/client",
    "bench": "tests/bench",
    "cli/cpg_cli": "tests/cli",
    "lab/cpg_lab": "tests/lab",
    "operator/cpg_operator": "tests/operator",
    "scheduler/cpg_engine": "tests/engine",
    "scheduler/cpg_scheduler": "tests/scheduler",
    "tools": "tests/tools",
}
"""Each folder of sources, and the folder of tests that mirrors it."""
ALWAYS = "tests/architecture"
SCENARIOS = "tests/scenarios"
DOCUMENTS = re.compile(r"(docs|examples)/|[^/]+\.md$")
NOT_A_UNIT_TEST = "tests/e2e"


def select_tests(changed: Iterable[str], root: Path) -> list[str]:
    """Return the test files, folders and node ids that concern the changed files, without any inside another."""
    found = {ALWAYS, *(argument for path in changed for argument in _select(path, root))}
    folders = tuple(f"{argument}/" for argument in found if (root / argument).is_dir())
    return sorted(argument for argument in found if not argument.startswith(folders) or f"{argument}/" in folders)


def _select(path: str, root: Path) -> Iterator[str]:
    if path.startswith("tests/"):
        yield from _of_tests(path, root)
    elif DOCUMENTS.match(path):
        yield "tests/docs"
    elif path.endswith(".py"):
        for folder, mirror in MIRRORS.items():
            if path.startswith(f"{folder}/"):
                yield from _of_source(PurePosixPath(path), PurePosixPath(folder), mirror, root)


def _of_tests(path: str, root: Path) -> Iterator[str]:
    """Yield a changed test file itself, and for whatever helps tests the folder that it stands in."""
    file = PurePosixPath(path)
    if path.startswith(NOT_A_UNIT_TEST) or not (root / file.parent).is_dir() or len(file.parts) <= 2:
        return
    if path.startswith(f"{SCENARIOS}/") and file.suffix == ".yaml":
        if (root / file).exists():
            name = file.relative_to(SCENARIOS).with_suffix("")
            yield f"{SCENARIOS}/test_scenarios.py::test_scenario[{name}]"
    elif not file.name.startswith("test_"):
        yield str(file.parent)
    elif (root / file).exists():
        yield path


def _of_source(file: PurePosixPath, folder: PurePosixPath, mirror: str, root: Path) -> Iterator[str]:
    inside = file.relative_to(folder)
    tests = root / mirror / inside.parent
    name = file.stem.strip("_")
    mirrored = [*tests.glob(f"test_{name}.py"), *tests.glob(f"test_{name}_*.py")] if file.stem != "__init__" else []
    if found := mirrored or list(_importers(file, folder, root)):
        yield from (str(test.relative_to(root)) for test in found)
        return
    while not tests.is_dir() and tests != root / mirror:
        tests = tests.parent
    if tests.is_dir():
        yield str(tests.relative_to(root))


def _importers(file: PurePosixPath, folder: PurePosixPath, root: Path) -> Iterator[Path]:
    """Yield the unit tests that import a module; a package is imported by its own name alone."""
    parts = file.with_suffix("").relative_to(folder if folder.name in {"bench", "tools"} else folder.parent).parts
    module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    for test in sorted((root / "tests").rglob("test_*.py")):
        is_unit = not str(test.relative_to(root)).startswith(NOT_A_UNIT_TEST)
        text = test.read_text("utf-8")
        if is_unit and parts[-1] in text and module in _imported(text):
            yield test


def _imported(text: str) -> set[str]:
    """Return the names that a file may import as modules."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found
