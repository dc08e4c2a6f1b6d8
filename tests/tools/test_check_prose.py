"""The command line of the prose check."""

from pathlib import Path

import pytest

import check_prose
from prose import repository
from prose.repository import git

RIDDLE = "nobody waits\n"  # prose: quotation


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with a riddle that is committed, in place of ours."""
    git("init", "-q", root=tmp_path)
    git("config", "core.hooksPath", str(tmp_path / "none"), root=tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "old.md").write_text(RIDDLE, "utf-8")
    git("add", "-A", root=tmp_path)
    identity = ("-c", "user.email=a@example.com", "-c", "user.name=a")
    git(*identity, "commit", "-q", "-m", "first", root=tmp_path)
    monkeypatch.setattr(check_prose, "ROOT", tmp_path)
    for name in ("files", "staged_lines", "staged_text", "changed_lines"):
        of_repository = getattr(repository, name)
        monkeypatch.setattr(check_prose, name, lambda *given, call=of_repository: call(*given, root=tmp_path))
    return tmp_path


def test_riddles_in_paths_fail(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder stands for the files below it."""
    assert check_prose.main(["docs"]) == 1
    assert capsys.readouterr().out.startswith("docs/old.md:1: ")
    assert check_prose.main(["doc", "LICENSE"]) == 0
    assert root.is_dir()


def test_only_added_lines_of_the_index_fail(root: Path) -> None:
    """Riddles that were there before do not keep a commit from being made."""
    assert check_prose.main(["--staged"]) == 0
    (root / "docs" / "old.md").write_text(f"{RIDDLE}{RIDDLE}", "utf-8")
    assert check_prose.main(["--staged"]) == 0
    git("add", "-A", root=root)
    assert check_prose.main(["--staged"]) == 1


def test_only_added_lines_of_the_working_tree_fail(root: Path) -> None:
    """Untracked files are added as a whole."""
    assert check_prose.main(["--since", "HEAD"]) == 0
    (root / "new.md").write_text(RIDDLE, "utf-8")
    assert check_prose.main(["--since", "HEAD"]) == 1


def test_densities_are_printed_by_area(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And never fail: their limits are held by a test of the architecture."""
    assert check_prose.main([]) == 0
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()] == [["docs", "1"], ["all", "1"]]
    assert root.is_dir()
