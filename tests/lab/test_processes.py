"""Child processes cannot outlive the lab, and end gracefully if they can."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_lab.process_identity import ProcessIdentity
from cpg_lab.processes import Process, stop_all, tail_of

if TYPE_CHECKING:
    from tests.lab.conftest import Runner

SLEEP = "import time; print('up'); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"
FAMILY = "import subprocess, sys; c = subprocess.Popen(['sleep', '60']); print(c.pid); c.wait()"


def await_output(process: Process, text: str = "up") -> str:
    """Wait until a program has printed something."""
    deadline = time.monotonic() + 10
    while text not in process.output():
        assert time.monotonic() < deadline, f"no {text!r}: {process.output()}"
        time.sleep(0.02)
    return process.output()


def await_death(identity: ProcessIdentity | None) -> None:
    """Wait until a process is gone."""
    assert identity is not None
    deadline = time.monotonic() + 10
    while identity.is_running():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_program_runs_and_writes_its_log(run: "Runner") -> None:
    """The log has standard output and standard error, and the exit code is kept."""
    process = run("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert process.wait(10)
    assert sorted(process.output().split()) == ["err", "out"]
    assert process.exit_code == 3
    assert not process.is_running
    assert process.identity is None


def test_output_is_of_this_run_only(run: "Runner") -> None:
    """A log may contain several runs."""
    assert run("print('first')").wait(10)
    second = run("print('second')")
    assert second.wait(10)
    assert second.output() == "second\n"
    assert second.log.read_text() == "first\nsecond\n"


def test_the_tail_is_short(run: "Runner") -> None:
    """It has the last lines of the log."""
    process = run("for n in range(100): print(n)")
    assert process.wait(10)
    assert process.tail(2) == "98\n99"
    assert tail_of(process.log, 2) == "98\n99"
    assert tail_of(process.log.with_name("nothing")) == ""


def test_a_program_has_a_session_of_its_own(run: "Runner") -> None:
    """Ctrl-C in our terminal does not reach it."""
    process = run(SLEEP)
    await_output(process)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)


def test_stop_terminates_first(run: "Runner") -> None:
    """A program that ends on SIGTERM is not killed."""
    process = run(SLEEP)
    await_output(process)
    process.stop(10)
    assert process.exit_code == -signal.SIGTERM


def test_stop_kills_after_the_grace_period(run: "Runner") -> None:
    """A program that ignores SIGTERM."""
    process = run(STUBBORN)
    await_output(process)
    process.stop(0.2)
    assert process.exit_code == -signal.SIGKILL


def test_stopping_can_be_repeated(run: "Runner") -> None:
    """A process that ended is left alone."""
    process = run("pass")
    assert process.wait(10)
    process.stop(0.1)
    process.kill()
    assert process.exit_code == 0


def test_grace_periods_are_concurrent(run: "Runner") -> None:
    """Several programs that ignore SIGTERM cost one grace period."""
    stubborn = [run(STUBBORN, name=str(number)) for number in range(3)]
    for process in stubborn:
        await_output(process)
    began = time.monotonic()
    stop_all(stubborn, 0.5)
    assert time.monotonic() - began < 1.2
    assert not any(process.is_running for process in stubborn)


def test_killing_includes_the_children(run: "Runner") -> None:
    """Programs that a program started end with it."""
    process = run(FAMILY)
    child = ProcessIdentity.of(int(await_output(process, "\n")))
    process.kill()
    await_death(child)


def test_waiting_has_a_timeout(run: "Runner") -> None:
    """It returns whether the process ended."""
    assert not run(SLEEP).wait(0.05)


def test_a_program_outlives_the_thread_that_started_it(run: "Runner") -> None:
    """The kernel ties it to the forking thread, which lives as long as the process."""
    started: list[Process] = []
    thread = threading.Thread(target=lambda: started.append(run(SLEEP)))
    thread.start()
    thread.join()
    await_output(started[0])
    time.sleep(0.1)
    assert started[0].is_running


def test_a_missing_program_is_named_in_the_log(tmp_path: Path) -> None:
    """The process ends at once."""
    process = Process("nothing", [tmp_path / "nothing"], log=tmp_path / "log")
    assert process.wait(10)
    assert process.exit_code == 1
    assert f"cannot run {tmp_path / 'nothing'}: No such file" in process.output()


def test_a_killed_parent_ends_its_programs(tmp_path: Path) -> None:
    """Kill -9 of the parent ends the program."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom cpg_lab.processes import Process\n"
        "process = Process('child', ['/bin/sleep', '60'], log=Path(sys.argv[1]))\n"
        "print(process.pid, flush=True)\ntime.sleep(60)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:  # noqa: S603  # our own
        assert parent.stdout is not None
        child = ProcessIdentity.of(int(parent.stdout.readline()))
        parent.kill()
        parent.wait()
        await_death(child)


def test_an_interrupted_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt during the start kills the program."""
    started: list[subprocess.Popen[bytes]] = []
    popen, result = subprocess.Popen, Future.result

    def slow(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **options))  # type: ignore[call-overload]
        time.sleep(0.3)
        return started[0]

    def interrupted(*arguments: object) -> object:
        if not started:
            await_start(started)
            raise KeyboardInterrupt
        return result(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(subprocess, "Popen", slow)
    monkeypatch.setattr(Future, "result", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Process("late", ["/bin/sleep", "60"], log=tmp_path / "log")
    assert started[0].wait(10) == -signal.SIGKILL


def await_start(started: list[subprocess.Popen[bytes]]) -> None:
    """Wait until there is a process."""
    deadline = time.monotonic() + 10
    while not started:
        assert time.monotonic() < deadline
        time.sleep(0.01)
