"""Temporary folders end with their processes."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cpg_lab import locks, temporary_folders
from cpg_lab.temporary_folders import OwnedFolder

if TYPE_CHECKING:
    from tests.lab.conftest import Runner

CLAIM = "import sys, time\nfrom pathlib import Path\nfrom cpg_lab.temporary_folders import OwnedFolder\n"
CLAIM += "claim = OwnedFolder.create(Path(sys.argv[1])); print(claim.folder); time.sleep(60)"


def test_an_owned_folder_is_private_until_released(tmp_path: Path) -> None:
    """It is removed on release; releasing twice is fine."""
    claim = OwnedFolder.create(tmp_path)
    assert claim.folder.stat().st_mode & 0o777 == 0o700
    claim.release()
    assert not claim.folder.exists()
    claim.release()


def test_folders_of_running_owners_are_kept(tmp_path: Path) -> None:
    """By removing orphans, and by creating another folder."""
    first = OwnedFolder.create(tmp_path)
    second = OwnedFolder.create(tmp_path)
    assert temporary_folders.remove_orphans(tmp_path) == []
    assert first.folder.is_dir()
    assert second.folder.is_dir()
    first.release()
    second.release()


def test_orphans_are_removed(tmp_path: Path, run: "Runner") -> None:
    """The folder of a killed process is removed when the next one is created."""
    owner = run(CLAIM, str(tmp_path))
    for _ in range(200):
        if owner.output().endswith("\n"):
            break
        time.sleep(0.05)
    left = Path(owner.output().strip())
    assert temporary_folders.remove_orphans(tmp_path) == []
    owner.kill()
    assert left.is_dir()
    OwnedFolder.create(tmp_path).release()
    assert not left.exists()


def test_a_new_folder_held_by_another_process_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not happen, so it is checked."""
    real = locks.try_hold
    monkeypatch.setattr(locks, "try_hold", lambda path: None if path.name == "owner.lock" else real(path))
    with pytest.raises(RuntimeError, match="another process holds"):
        OwnedFolder.create(tmp_path)
