"""Locks exclude, wait, and end with their holder."""

import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_lab import locks
from cpg_lab.processes import Process

if TYPE_CHECKING:
    from tests.lab.conftest import Runner

HOLD = "import sys, time\nfrom pathlib import Path\nfrom cpg_lab import locks\n"
HOLD += "locks.try_hold(Path(sys.argv[1])); print('held'); time.sleep(60)"


def _await_text(process: Process, text: str) -> None:
    for _ in range(200):
        if text in process.output():
            return
        time.sleep(0.05)
    pytest.fail(f"no {text}")


def test_a_held_lock_is_not_taken_twice(tmp_path: Path) -> None:
    """While a block holds the lock no other process gets it."""
    path = tmp_path / "lock"
    with locks.hold(path):
        assert locks.try_hold(path) is None
    descriptor = locks.try_hold(path)
    assert descriptor is not None
    os.close(descriptor)


def test_waiting_is_reported_once(tmp_path: Path) -> None:
    """The second process waits, reports it once, and gets the lock when the first is done."""
    path, events = tmp_path / "lock", list[str]()
    waiting = threading.Event()

    def note() -> None:
        events.append("waits")
        waiting.set()

    def second() -> None:
        with locks.hold(path, on_wait=note):
            events.append("second")

    thread = threading.Thread(target=second)
    with locks.hold(path):
        thread.start()
        assert waiting.wait(5)
        events.append("first")
    thread.join(5)
    assert events == ["waits", "first", "second"]


def test_a_free_lock_is_taken_without_waiting(tmp_path: Path) -> None:
    """Nothing is reported."""
    with locks.hold(tmp_path / "lock", on_wait=lambda: pytest.fail("waited")):
        pass


def test_a_death_releases_the_lock(tmp_path: Path, run: "Runner") -> None:
    """A killed holder holds nothing any more."""
    path = tmp_path / "lock"
    holder = run(HOLD, str(path))
    _await_text(holder, "held")
    assert locks.try_hold(path) is None
    holder.kill()
    descriptor = locks.try_hold(path)
    assert descriptor is not None
    os.close(descriptor)


def test_a_replaced_file_is_not_mistaken_for_the_lock(tmp_path: Path) -> None:
    """A process that waited on a removed file locks the new one, so two never hold the lock at once."""
    path = tmp_path / "lock"
    waiting, entered = threading.Event(), threading.Event()

    def second() -> None:
        with locks.hold(path, on_wait=waiting.set):
            entered.set()
            assert locks.try_hold(path) is None

    thread = threading.Thread(target=second)
    with locks.hold(path):
        thread.start()
        assert waiting.wait(5)
        time.sleep(0.1)
        path.unlink()
    thread.join(5)
    assert entered.is_set()
    assert path.exists()


def test_the_folder_is_created(tmp_path: Path) -> None:
    """A lock may be in a folder that does not exist yet."""
    with locks.hold(tmp_path / "a" / "b" / "lock"):
        assert (tmp_path / "a" / "b" / "lock").exists()
