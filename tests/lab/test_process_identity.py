"""A process is identified by its number and its start time."""

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from cpg_lab.process_identity import ProcessIdentity

if TYPE_CHECKING:
    from tests.lab.conftest import Runner

SLEEP = "import time; time.sleep(60)"


def test_this_process_runs() -> None:
    """By its own identity."""
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    assert identity.is_running()


def test_an_unused_number_has_no_identity() -> None:
    """None is returned."""
    assert ProcessIdentity.of(2**22 + 1) is None


def test_a_reused_number_is_another_process() -> None:
    """With another start time it does not count as running, and is not signalled."""
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    other = replace(identity, started=identity.started - 1)
    assert not other.is_running()
    other.send(signal.SIGKILL)  # would end the tests


def test_a_signal_reaches_the_process(run: "Runner") -> None:
    """Afterwards it does not run, and further signals do nothing."""
    process = run(SLEEP)
    identity = process.identity
    assert identity is not None
    identity.send(signal.SIGKILL)
    assert process.wait(5)
    assert not identity.is_running()
    identity.send(signal.SIGKILL)


def test_a_zombie_does_not_run(run: "Runner") -> None:
    """Before its parent collects it."""
    process = run("pass")
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.is_running()
