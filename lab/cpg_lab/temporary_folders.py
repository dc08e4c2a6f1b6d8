"""Folders of clusters that last as long as their process.

Whoever has a folder holds a lock in it. The kernel drops the lock when the process dies, however it dies, so
a folder whose lock is free belongs to nobody, and the next lab that starts removes it.
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
    """A folder of our own, until released."""

    folder: Path
    _descriptor: int

    @classmethod
    def create(cls, parent: Path) -> Self:
        """Make a folder, clearing away those of the dead first."""
        with locks.held(parent / _GATE):  # so that nobody sees a folder before its lock is taken
            _remove_orphans(parent)
            folder = Path(tempfile.mkdtemp(prefix="cluster-", dir=parent))
            descriptor = locks.try_hold(folder / _OWNER)
        if descriptor is None:
            raise RuntimeError(f"somebody else holds {folder}, which was made just now")
        return cls(folder, descriptor)

    def release(self) -> None:
        """Remove the folder and give up the claim."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._descriptor)


def remove_orphans(parent: Path) -> list[Path]:
    """Remove the folders whose owners are dead; give those that were removed."""
    with locks.held(parent / _GATE):
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
