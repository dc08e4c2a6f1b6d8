"""The command as a whole, in processes of its own: it replaces the clocks of the process that it runs in."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NIGHTS = sorted((HERE / "regressions").glob("*.json"))


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    command = [sys.executable, "-m", "cpg_simulation", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603 - ours


def test_a_night_is_the_same_each_time_whatever_is_played_beside_it() -> None:
    """Its digest covers every write with its time."""
    first = simulate("--seeds", "3,8,11", "--jobs", "2", "--digests")
    second = simulate("--seeds", "8", "--digests")
    assert first.returncode == second.returncode == 0, first.stdout + second.stdout
    digests = [line for line in first.stdout.splitlines() if line.startswith("8 ")]
    assert digests
    assert digests == [line for line in second.stdout.splitlines() if line.startswith("8 ")]


def test_nights_that_once_broke_a_promise_keep_it_now() -> None:
    """Each is kept as the shortest night that was found to break it."""
    assert NIGHTS
    found = simulate("--nights", *map(str, NIGHTS))
    assert found.returncode == 0, found.stdout
    assert f"{len(NIGHTS)} nights, 0 of them broken" in found.stdout


def test_a_night_is_told_in_words() -> None:
    """Planned events, writes and log lines, in the order of time."""
    found = simulate("--seeds", "8", "--story")
    assert found.returncode == 0, found.stdout
    lines = found.stdout.splitlines()
    assert lines[0].startswith("seed 8, ")
    told = [line for line in lines if line[:9].strip().replace(".", "").isdigit()]
    assert [float(line[:9]) for line in told] == sorted(float(line[:9]) for line in told)
    for part in ("user: creates", "binds pod", "logs", "all faults are over"):
        assert any(part in line for line in told), part


@pytest.mark.parametrize("arguments", [["--seeds", "five"], ["--nights", "missing.json"], []])
def test_bad_arguments_are_refused_in_a_line(arguments: list[str]) -> None:
    """The message names what is wrong."""
    found = simulate(*arguments)
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    assert found.stderr.strip().splitlines()[-1].startswith("cpg_simulation: error:")
