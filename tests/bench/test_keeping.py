"""Results as files, and what is said of the code that they were measured with."""

import json
from pathlib import Path

import keeping
import pytest
from keeping import Code, code, keep


@pytest.mark.parametrize(
    ("described", "commit", "is_clean", "says"),
    [
        ("abc1234", "abc1234", True, ""),
        ("abc1234-dirty", "abc1234-dirty", False, "abc1234-dirty is not as committed"),
        ("", "unknown", False, "git does not say which commit it is"),
    ],
)
def test_figures_of_no_commit_are_kept_and_flagged(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    described: str,
    commit: str,
    is_clean: bool,  # noqa: FBT001 - a column of the table
    says: str,
) -> None:
    """In the file as well as on the screen."""
    path = keep("test", {"figure": 1}, measured=Code.of(described), folder=tmp_path)
    kept = json.loads(path.read_text("utf-8"))
    assert (kept["figure"], kept["versions"]["commit"], kept["versions"]["is_clean"]) == (1, commit, is_clean)
    said = capsys.readouterr().out
    assert str(path) in said
    assert said.partition("NO FIGURES TO QUOTE: ")[2].strip() == says


def test_a_machine_without_git_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then nobody knows which code it was."""
    monkeypatch.setenv("PATH", "")
    assert code() == Code("unknown", is_clean=False)


def test_a_folder_that_is_no_checkout_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Git then answers with an error and no word."""
    monkeypatch.setattr(keeping, "RESULTS", tmp_path / "results")
    assert code() == Code("unknown", is_clean=False)
