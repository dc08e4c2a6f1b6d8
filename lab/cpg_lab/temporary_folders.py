"""Temporary folders of clusters, which end with their process.

The owner of a folder holds a lock in it. The kernel releases the lock when the process dies, however it dies. So a
folder with a free lock has no owner, and the next lab that starts removes it.
"""

import contextlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cpg_lab import locks

_OWNER = "owner.lock"
_GATE = ".gate"


@dataclass
class OwnedFolder:
    """A folder that this process owns until it releases it."""

    folder: Path
    _descriptor: int

    @classmethod
    def create(cls, parent: Path) -> Self:
        """Create a folder, and remove orphans first."""
        with locks.hold(parent / _GATE):  # so that no process sees the folder before its lock is taken
            _remove_orphans(parent)
            folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=parent))
            descriptor = locks.try_hold(folder / _OWNER)
        if descriptor is None:
            raise RuntimeError(f"another process holds {folder}, which was created just now")
        return cls(folder, descriptor)

    def release(self) -> None:
        """Remove the folder and release its lock."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def remove_orphans(parent: Path) -> list[Path]:
    """Remove the folders without an owner; return the removed ones."""
    with locks.hold(parent / _GATE):
        return _remove_orphans(parent)


def _remove_orphans(parent: Path) -> list[Path]:
    removed = []
    for folder in parent.glob("cluster-*"):
        descriptor = locks.try_hold(folder / _OWNER)
        if descriptor is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)
        removed.append(folder)
    return removed
