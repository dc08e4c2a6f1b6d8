"""Which tests concern a change."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from selection import MIRRORS, select_tests

ROOT = Path(__file__).parents[2]
TREE = (
    "tests/architecture/test_layout.py",
    "tests/docs/test_documents.py",
    "tests/engine/gangs/test_placing.py",
    "tests/engine/gangs/test_placing_properties.py",
    "tests/engine/gangs/conftest.py",
    "tests/engine/test_cycle.py",
    "tests/e2e/test_imports.py",
    "tests/scenarios/flat/one.yaml",
    "tests/scheduler/test_main.py",
    "tests/scheduler/preemption/test_machine.py",
    "tests/tools/test_images.py",
)
IMPORTS = "from cpg_engine.gangs.unit import Unit\nimport cpg_engine.weights\nfrom cpg_engine.gangs import notes\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a tree of tests."""
    for path in TREE:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    for name in ("tests/engine/test_cycle.py", "tests/e2e/test_imports.py"):
        (tmp_path / name).write_text(IMPORTS, "utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (
            ["scheduler/cpg_engine/gangs/placing.py"],
            ["tests/engine/gangs/test_placing.py", "tests/engine/gangs/test_placing_properties.py"],
        ),
        (["scheduler/cpg_scheduler/__main__.py"], ["tests/scheduler/test_main.py"]),
        (["scheduler/cpg_engine/gangs/unit.py"], ["tests/engine/test_cycle.py"]),
        (["scheduler/cpg_engine/gangs/notes.py"], ["tests/engine/test_cycle.py"]),
        (["scheduler/cpg_engine/weights.py"], ["tests/engine/test_cycle.py"]),
        (["scheduler/cpg_engine/gangs/choosing.py"], ["tests/engine/gangs"]),
        (["scheduler/cpg_engine/scores/new/even.py"], ["tests/engine"]),
        (["scheduler/cpg_scheduler/preemption/__init__.py"], ["tests/scheduler/preemption"]),
        (["operator/cpg_operator/app.py"], []),
        (["tools/images.py"], ["tests/tools/test_images.py"]),
        (["tests/tools/test_images.py", "tests/tools/test_gone.py"], ["tests/tools/test_images.py"]),
        (["tests/engine/gangs/conftest.py", "tests/engine/gangs/test_placing.py"], ["tests/engine/gangs"]),
        (["tests/scenarios/flat/one.yaml"], ["tests/scenarios/test_scenarios.py::test_scenario[flat/one]"]),
        (["tests/scenarios/flat/gone.yaml", "tests/e2e/test_imports.py", "tests/conftest.py"], []),
        (["docs/concepts/trees.md", "README.md"], ["tests/docs"]),
        (["Makefile", "charts/kube-cpg/values.yaml"], []),
    ],
)  # fmt: skip
def test_changed_files_lead_to_their_tests(root: Path, changed: Sequence[str], expected: list[str]) -> None:
    """By the mirrored name, then by imports, then by the nearest folder; the architecture is always tested."""
    assert select_tests(changed, root) == sorted(["tests/architecture", *expected])


def test_every_mirror_mirrors_a_folder() -> None:
    """The table names folders of sources that exist, and all packages are in it."""
    assert [folder for folder in MIRRORS if not (ROOT / folder).is_dir()] == []
    packages = {str(marker.parent.relative_to(ROOT)) for marker in ROOT.glob("*/cpg_*/py.typed")}
    assert packages <= MIRRORS.keys()
