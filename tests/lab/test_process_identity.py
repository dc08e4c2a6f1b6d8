"""A process is known by its number and its beginning."""

import os
import signal
from dataclasses import replace
from typing import TYPE_CHECKING

from cpg_lab.process_identity import ProcessIdentity

if TYPE_CHECKING:
    from tests.lab.conftest import Runner

SLEEP = "import time; time.sleep(60)"


def test_we_live() -> None:
    """The identity of this very process lives."""
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    assert identity.is_running()


def test_nobody_has_no_identity() -> None:
    """A number that no process has gives none."""
    assert ProcessIdentity.of(2**22 + 1) is None


def test_the_same_number_may_be_somebody_else() -> None:
    """Same number, other beginning: not the one that was meant, and not signalled."""
    identity = ProcessIdentity.of(os.getpid())
    assert identity is not None
    other = replace(identity, started=identity.started - 1)
    assert not other.is_running()
    other.send(signal.SIGKILL)  # would end the tests


def test_a_signal_ends_it(run: "Runner") -> None:
    """Signalling the one that was meant reaches it; afterwards it no longer lives, and signals go nowhere."""
    process = run(SLEEP)
    identity = process.identity
    assert identity is not None
    identity.send(signal.SIGKILL)
    assert process.wait(5)
    assert not identity.is_running()
    identity.send(signal.SIGKILL)


def test_one_that_waits_to_be_noticed_does_not_live(run: "Runner") -> None:
    """A process that ended counts as dead before its parent collects it."""
    process = run("pass")
    identity = ProcessIdentity.of(process.pid)
    assert identity is not None
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not identity.is_running()
