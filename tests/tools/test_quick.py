"""What the quick check runs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import quick
from prose.repository import git

ROOT = Path(__file__).parents[2]
IDENTITY = ("-c", "user.email=a@example.com", "-c", "user.name=a")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with one commit."""
    git("init", "-q", root=tmp_path)
    git("config", "core.hooksPath", str(tmp_path / "none"), root=tmp_path)
    commit(tmp_path, "one.py")
    return tmp_path


def commit(root: Path, name: str) -> None:
    """Commit a new file."""
    (root / name).touch()
    git("add", "-A", root=root)
    git(*IDENTITY, "commit", "-q", "-m", name, root=root)


def test_a_dirty_tree_is_compared_with_the_last_commit(root: Path) -> None:
    """Untracked, changed and deleted files are changes."""
    (root / "two.py").touch()
    (root / "one.py").unlink()
    assert quick.base_of(root) == "HEAD"
    assert quick.changed_files("HEAD", root) == ["one.py", "two.py"]


def test_a_clean_tree_is_compared_with_the_commit_before(root: Path) -> None:
    """So a commit can be checked after it was made; the first one has none before it."""
    assert quick.base_of(root) == "HEAD"
    commit(root, "two.py")
    assert quick.base_of(root) == "HEAD~1"
    assert quick.changed_files("HEAD~1", root) == ["two.py"]


@pytest.mark.parametrize(
    ("changed", "programs"),
    [
        (["tools/quick.py"], ["ruff", "ruff", "check_prose.py", "mypy", "lint-imports", "pytest"]),
        (["tools/gone.py"], ["check_prose.py", "pytest"]),
        (["pyproject.toml"], ["check_prose.py", "mypy", "lint-imports", "pytest"]),
        (["README.md"], ["check_prose.py", "pytest"]),
    ],
)
def test_only_what_concerns_the_change_is_run(changed: Sequence[str], programs: list[str]) -> None:
    """Python files are linted and typed; prose and tests are always checked."""
    names = {"ruff", "check_prose.py", "mypy", "lint-imports", "pytest"}
    commands = quick.commands(changed, "HEAD", ROOT)
    assert [next(name for word in command if (name := Path(word).name) in names) for command in commands] == programs


def test_nothing_to_check_is_no_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The program says that nothing has changed."""
    monkeypatch.setattr(quick, "changed_files", lambda *_: [])
    assert quick.main(["--since", "HEAD"]) == 0
    assert capsys.readouterr().out == "Nothing has changed since HEAD.\n"


def test_all_checks_run_and_failures_are_repeated(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The exit code is that of the first program that failed."""
    commands = [["true"], ["sh", "-c", "exit 3"], ["false"], ["echo", "last"]]
    monkeypatch.setattr(quick, "changed_files", lambda *_: ["one.py"])
    monkeypatch.setattr(quick, "commands", lambda *_: commands)
    assert quick.main(["--since", "HEAD"]) == 3
    output = capfd.readouterr().out
    assert output.startswith('$ true\n$ sh -c "exit 3"\n$ false\n$ echo last\n')
    assert 'FAILED: sh -c "exit 3"\nFAILED: false\n1 changed files checked' in output
    del commands[1:3]
    assert quick.main(["--since", "HEAD"]) == 0
    assert "FAILED" not in capfd.readouterr().out
