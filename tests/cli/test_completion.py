"""Completion of commands, options and targets."""

import subprocess
import sys
from pathlib import Path

import pytest

from cpg_cli.__main__ import completions
from cpg_cli.cluster import target_names
from cpg_cli.root import COMMANDS

PROGRAMS = Path(sys.executable).parent


def test_commands_come_with_their_help() -> None:
    """As kubectl reads them; names of files do not follow."""
    found = list(completions([""]))
    assert found == [*(f"{name}\t{line}" for name, line in COMMANDS.items()), ":4"]
    assert list(completions([])) == found


def test_options_are_completed_and_files_where_one_is_expected() -> None:
    """The last line says so."""
    assert list(completions(["convert", "--fi"])) == ["--filename\tThe manifests.", ":4"]
    assert list(completions(["convert", "-f", ""])) == [":0"]
    assert list(completions(["wait", "x", "--for", "p"])) == ["placed", ":4"]


def test_a_target_is_completed_from_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """And without one there is no error."""
    monkeypatch.setattr(target_names, "_names", lambda _: ["jobset/train", "train"])
    assert list(completions(["wait", "t"])) == ["train", ":4"]

    def fail(_: object) -> list[str]:
        raise OSError

    monkeypatch.setattr(target_names, "_names", fail)
    assert list(completions(["wait", "t"])) == [":4"]


@pytest.mark.parametrize(
    ("shell", "text"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete --no-files")]
)
def test_each_shell_has_a_script(shell: str, text: str) -> None:
    """For the program without kubectl."""
    done = subprocess.run(  # noqa: S603 - our own program
        [PROGRAMS / "kubectl-cpg", "completion", shell], capture_output=True, text=True, check=True
    )
    assert text in done.stdout


def test_the_program_for_kubectl_completes(tmp_path: Path) -> None:
    """The one that an installation has, and the one that `completion kubectl` writes."""
    installed = str(PROGRAMS / "kubectl_complete-cpg")
    first = subprocess.run([installed, "doc"], capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    assert first.stdout == f"doctor\t{COMMANDS['doctor']}\n:4\n"
    script = subprocess.run(  # noqa: S603 - our own program
        [PROGRAMS / "kubectl-cpg", "completion", "kubectl"], capture_output=True, text=True, check=True
    ).stdout
    program = tmp_path / "kubectl_complete-cpg"
    program.write_text(script)
    program.chmod(0o755)
    path = {"PATH": f"{PROGRAMS}:/usr/bin:/bin"}
    second = subprocess.run([program, "doc"], env=path, capture_output=True, text=True, check=True)  # noqa: S603 - see above
    assert second.stdout == first.stdout
