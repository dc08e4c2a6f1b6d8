"""Locks between processes: a file that is held while somebody works, and that a death always releases.

The kernel drops the lock with the holder's last file descriptor, so a lock never outlives its owner, and
whether a lock is held says whether the owner lives. That is more than a file with a process number can tell,
which may long belong to somebody else.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path


def _nothing() -> None:
    """Take no notice of having to wait."""


@contextlib.contextmanager
def held(path: Path, *, on_wait: Callable[[], None] = _nothing) -> Iterator[None]:
    """Hold the lock for a block; call `on_wait` once if somebody else has it."""
    descriptor = _taken(path, on_wait)
    try:
        yield
    finally:
        os.close(descriptor)


def try_hold(path: Path) -> int | None:
    """Take the lock if it is free; the descriptor holds it until closed, or until this process ends."""
    descriptor = _opened(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _taken(path: Path, on_wait: Callable[[], None]) -> int:
    """Wait for the lock; begin again if the file was replaced meanwhile: we hold the old one."""
    waited = False
    while True:
        descriptor = try_hold(path)
        if descriptor is None:
            if not waited:
                on_wait()
                waited = True
            descriptor = _opened(path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except BaseException:
                os.close(descriptor)
                raise
        if _still_named(descriptor, path):
            return descriptor
        os.close(descriptor)


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _still_named(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)
