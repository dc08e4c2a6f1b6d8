"""Locks between processes, which the death of the holder always releases.

The kernel drops the lock with the holder's last file descriptor. So a lock never outlives its owner, and a held lock
proves that the owner runs. A file with a process number proves less: the number may belong to another process by now.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path


def _nothing() -> None:
    """Do nothing while waiting."""


@contextlib.contextmanager
def hold(path: Path, *, on_wait: Callable[[], None] = _nothing) -> Iterator[None]:
    """Hold the lock for a block; call `on_wait` once if another process holds it."""
    descriptor = _take(path, on_wait)
    try:
        yield
    finally:
        os.close(descriptor)


def try_hold(path: Path) -> int | None:
    """Return a descriptor that holds the lock until it is closed or this process ends; None if the lock is held."""
    descriptor = _open(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _take(path: Path, on_wait: Callable[[], None]) -> int:
    """Wait for the lock; start again if the file was replaced meanwhile, because the lock is on the old one."""
    waited = False
    while True:
        descriptor = try_hold(path)
        if descriptor is None:
            if not waited:
                on_wait()
                waited = True
            descriptor = _open(path)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except BaseException:
                os.close(descriptor)
                raise
        if _is_current(descriptor, path):
            return descriptor
        os.close(descriptor)


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _is_current(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino)
