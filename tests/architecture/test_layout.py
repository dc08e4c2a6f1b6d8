"""The layout of the repository."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES: list[str] = SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]

FOLDERS = {
    ".ci",
    ".github",
    "api",
    "bench",
    "charts",
    "cli",
    "docker",
    "docs",
    "examples",
    "lab",
    "manifests",
    "operator",
    "requirements",
    "scheduler",
    "tests",
    "tools",
}
FILES = {
    ".dockerignore",
    ".editorconfig",
    ".gitignore",
    ".pre-commit-config.yaml",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "kind-config.yaml",
    "pyproject.toml",
}
NAMELESS = {"utils", "util", "common", "helpers", "helper", "manager", "managers", "misc"}
LIKE_THE_STANDARD_LIBRARY = {"api/cpg_api/selectors.py", "scheduler/cpg_engine/cel/selectors.py"}
"""Named as in Kubernetes, in packages without scripts."""

FORBIDDEN = tuple(
    "".join(parts)
    for parts in (
        ("pypi", ".org"),
        ("python", "hosted.org"),
        ("proxy.", "golang.org"),
        ("sum.", "golang.org"),
        ("registry.", "k8s.io"),
        ("registry-1.", "docker.io"),
        ("/ro", "ot/"),
        ("/wo", "rk/"),
    )
)
"""Hosts that a machine may reach by another name, and paths of one machine; in parts, so that this file has none."""

MODULE_LISTS = {"go.mod", "go.sum"}
"""Files in which a host may be the first part of a module path."""


def tracked() -> list[str]:
    """Return the files that are tracked or about to be."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607 - the git on PATH
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted({name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()})


def modules() -> list[str]:
    """Return the modules of our packages."""
    return [
        name for name in tracked() if name.endswith(".py") and name.startswith(tuple(f"{one}/" for one in PACKAGES))
    ]


def forbidden_words(name: str) -> Iterator[str]:
    """Yield the places of forbidden words in a file."""
    text = (ROOT / name).read_bytes()
    if b"\0" in text:
        return
    for number, line in enumerate(text.decode(errors="replace").splitlines(), 1):
        yield from (f"{name}:{number}: {word}" for word in FORBIDDEN if word in line)


def test_the_operator_folder_is_no_package() -> None:
    """With an __init__.py in it, Python started in the root would import it as its own module `operator`."""
    assert (ROOT / "operator").is_dir()
    assert not (ROOT / "operator" / "__init__.py").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_typed(package: str) -> None:
    """Without the marker, type checkers of users ignore our annotations."""
    assert (ROOT / package / "py.typed").is_file()
    assert (ROOT / package / "__init__.py").is_file()


def test_every_package_is_known_to_every_tool() -> None:
    """The editable install, mypy and ruff look into the folders of all packages."""
    folders = {package.split("/")[0] for package in PACKAGES}
    assert set(SETTINGS["tool"]["hatch"]["build"]["dev-mode-dirs"]) == folders
    assert folders <= set(SETTINGS["tool"]["mypy"]["mypy_path"])
    assert folders <= set(SETTINGS["tool"]["ruff"]["src"])
    assert {name.split("/")[1] for name in modules()} == {package.split("/")[1] for package in PACKAGES}


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    """A script's folder is first on the path, so Python itself would import ours."""
    found = {name for name in modules() if {*Path(name).with_suffix("").parts[1:]} & sys.stdlib_module_names}
    assert found == LIKE_THE_STANDARD_LIBRARY


def test_every_module_is_named_after_what_it_holds_or_does() -> None:
    """A module for everything has no name in the domain."""
    assert [name for name in tracked() if name.endswith(".py") and NAMELESS & {*Path(name).with_suffix("").parts}] == []


def test_the_top_level_is_fixed() -> None:
    """A new file or folder there is a decision."""
    assert {name.split("/")[0] for name in tracked() if "/" in name} <= FOLDERS
    assert {name for name in tracked() if "/" not in name} <= FILES


def test_every_folder_of_tests_is_in_their_readme() -> None:
    """It names the place for every new test; a place may be listed before its first test."""
    text = (ROOT / "tests" / "README.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^\| `([a-z0-9_/]+)/` \|", text, re.MULTILINE))
    assert {name.split("/")[1] for name in tracked() if re.match(r"tests/[^/]+/", name)} <= listed


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    """Machines are configured with their own mirrors, and checkouts are in different folders."""
    names = [name for name in tracked() if Path(name).name not in MODULE_LISTS]
    assert [offence for name in names for offence in forbidden_words(name)] == []


def test_forbidden_words_are_found_in_text(tmp_path: Path) -> None:
    """Binary files are skipped."""
    (tmp_path / "text").write_text("fine\nhttps://" + FORBIDDEN[0])
    (tmp_path / "binary").write_bytes(b"\0" + FORBIDDEN[0].encode())
    assert list(forbidden_words(str(tmp_path / "text"))) == [f"{tmp_path / 'text'}:2: {FORBIDDEN[0]}"]
    assert list(forbidden_words(str(tmp_path / "binary"))) == []
