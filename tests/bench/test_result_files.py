"""Result files, and the code that they name."""

import json
from pathlib import Path

import pytest
import result_files
from result_files import MeasuredCode, measured_code, write_result


@pytest.mark.parametrize(
    ("described", "commit", "is_clean", "says"),
    [
        ("abc1234", "abc1234", True, ""),
        ("abc1234-dirty", "abc1234-dirty", False, "abc1234-dirty has uncommitted changes"),
        ("", "unknown", False, "git does not know the commit"),
    ],
)
def test_figures_of_uncommitted_code_are_written_with_a_warning(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    described: str,
    commit: str,
    is_clean: bool,  # noqa: FBT001 - a column of the table
    says: str,
) -> None:
    """In the file and on the screen."""
    path = write_result("test", {"figure": 1}, measured=MeasuredCode.of(described), folder=tmp_path)
    kept = json.loads(path.read_text("utf-8"))
    assert (kept["figure"], kept["versions"]["commit"], kept["versions"]["is_clean"]) == (1, commit, is_clean)
    output = capsys.readouterr().out
    assert str(path) in output
    assert output.partition("NO FIGURES TO QUOTE: ")[2].strip() == says


def test_a_machine_without_git_has_an_unknown_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no error."""
    monkeypatch.setenv("PATH", "")
    assert measured_code() == MeasuredCode("unknown", is_clean=False)


def test_a_folder_outside_of_a_repository_has_an_unknown_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Git fails there, without output."""
    monkeypatch.setattr(result_files, "RESULTS", tmp_path / "results")
    assert measured_code() == MeasuredCode("unknown", is_clean=False)
