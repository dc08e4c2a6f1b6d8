"""Added lines, as git reports them."""

import subprocess
from pathlib import Path

import pytest

from prose.repository import added_lines, changed_lines, files, git, staged_lines, staged_text

DIFF = """\
diff --git a/gone b/gone
--- a/gone
+++ /dev/null
@@ -1,2 +0,0 @@
-x
-y
diff --git a/a b.py b/a b.py
--- a/a b.py\t
+++ b/a b.py\t
@@ -1 +1,2 @@
-one
+two
+three
@@ -9,0 +12 @@ def f():
+four
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a repository with one committed file."""
    for command in (
        ["init", "-q"],
        ["config", "user.email", "a@example.com"],
        ["config", "user.name", "a"],
        ["config", "core.hooksPath", str(tmp_path / "none")],
    ):
        git(*command, root=tmp_path)
    (tmp_path / "old.md").write_text("one\ntwo\n", "utf-8")
    git("add", "-A", root=tmp_path)
    git("commit", "-q", "-m", "first", root=tmp_path)
    return tmp_path


def test_added_lines_are_read_from_a_diff() -> None:
    """By their numbers in the new file; what is deleted adds none."""
    found = {path: set(lines) for path, lines in added_lines(DIFF).items() if lines}
    assert found == {"a b.py": {1, 2, 12}}


def test_staged_lines_are_those_of_the_next_commit(root: Path) -> None:
    """What is only in the working tree does not count."""
    (root / "old.md").write_text("one\nstaged\ntwo\n", "utf-8")
    git("add", "old.md", root=root)
    (root / "old.md").write_text("unstaged\none\nstaged\ntwo\n", "utf-8")
    assert staged_lines(root) == {"old.md": {2}}
    assert staged_text("old.md", root) == "one\nstaged\ntwo\n"


def test_changed_lines_are_those_of_the_working_tree(root: Path) -> None:
    """Staged or not; an untracked file counts whole."""
    (root / "old.md").write_text("one\n2\n", "utf-8")
    (root / "new.md").write_text("a\nb\n", "utf-8")
    found = changed_lines("HEAD", root)
    assert found["old.md"] == {2}
    assert found["new.md"] >= {1, 2}
    assert files(root) == ["new.md", "old.md"]


def test_an_error_of_git_is_an_error(root: Path) -> None:
    """A commit that does not exist is not taken for an empty change."""
    with pytest.raises(subprocess.CalledProcessError):
        changed_lines("nonsense", root)
