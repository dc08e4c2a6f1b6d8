"""The notes after the install contain three commands that work."""

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_lab import building

if TYPE_CHECKING:
    from tests.e2e.chart.conftest import Installed

WATCH_SECONDS = 3.0
"""How long a command with --watch runs."""

pytestmark = [pytest.mark.e2e, pytest.mark.realnode]


def shell(installed: "Installed", home: Path, command: str) -> str:
    """Run a command as a user would and return its output; stop one with --watch after a while."""
    programs = building.ensure(["helm", "kubectl"])
    path = os.pathsep.join(str(program.parent) for program in programs.values())
    environment = {"PATH": path, "HOME": str(home), "KUBECONFIG": str(installed.cluster.kubeconfig)}
    try:
        done = subprocess.run(  # noqa: S603 - a command of our chart
            command.split(),
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=WATCH_SECONDS if "--watch" in command else 90,
        )
    except subprocess.TimeoutExpired as watched:
        return (watched.stdout or b"").decode()
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_next_three_commands_work(installed: "Installed", tmp_path: Path) -> None:
    """They place a gang, list it and describe it."""
    notes = installed.helm("get", "notes", "kube-cpg")
    commands = re.findall(r"^ {5}(\S.*)$", notes, re.MULTILINE)
    assert [command.split()[0] for command in commands] == ["helm", "kubectl", "kubectl"]
    test, watch, describe = (shell(installed, tmp_path, command) for command in commands)
    assert "Succeeded" in test
    assert re.search(r"^kube-cpg +kube-cpg-test +Scheduled", watch, re.MULTILINE)
    assert re.search(r"Reason: +Scheduled", describe)
