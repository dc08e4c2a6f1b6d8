"""The shell environment for a named cluster."""

import subprocess
from pathlib import Path

import pytest

from cpg_lab import building, shell_environment
from cpg_lab.access import Access
from cpg_lab.labs import Lab


def test_a_shell_finds_programs_and_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After eval, kubectl is the lab's; eval can be repeated, and paths may contain spaces."""
    program = tmp_path / "kubectl-1234"
    program.write_text('#!/bin/sh\necho "looks at $KUBECONFIG"\n')
    program.chmod(0o755)
    lab = Lab("some", root=tmp_path / "two words")
    lab.folder.path.mkdir(parents=True)
    access = Access(url="", ca_file=Path("/ca"), token="", kubeconfig=Path("/a b/kubeconfig"), kubectl_path=program)
    monkeypatch.setattr(Lab, "access", lambda _: access)
    monkeypatch.setattr(building, "ensure", lambda names, _: dict.fromkeys(names, program))
    shell_environment.exports(lab)
    script = f"{shell_environment.exports(lab)}kubectl && helm && command -v cpg-lab"
    done = subprocess.run(["bash", "-ec", script], capture_output=True, text=True, check=True)  # noqa: S603, S607 - ours
    assert done.stdout.splitlines()[:2] == ["looks at /a b/kubeconfig"] * 2
