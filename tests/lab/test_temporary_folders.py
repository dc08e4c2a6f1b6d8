"""Folders of clusters go with their processes."""

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


def test_a_claim_is_a_private_folder_until_released(tmp_path: Path) -> None:
    """The folder is ours while we hold it, and gone afterwards; releasing twice is fine."""
    claim = OwnedFolder.create(tmp_path)
    assert claim.folder.stat().st_mode & 0o777 == 0o700
    claim.release()
    assert not claim.folder.exists()
    claim.release()


def test_a_living_owner_is_left_alone(tmp_path: Path) -> None:
    """Clearing, and another claim, touch nothing that is held."""
    first = OwnedFolder.create(tmp_path)
    second = OwnedFolder.create(tmp_path)
    assert temporary_folders.remove_orphans(tmp_path) == []
    assert first.folder.is_dir()
    assert second.folder.is_dir()
    first.release()
    second.release()


def test_what_the_dead_left_is_cleared(tmp_path: Path, run: "Runner") -> None:
    """The folder of a process that was killed goes with the next one that begins."""
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


def test_a_lock_that_cannot_be_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Should a new folder be held by somebody else, the claim is not made."""
    real = locks.try_hold
    monkeypatch.setattr(locks, "try_hold", lambda path: None if path.name == "owner.lock" else real(path))
    with pytest.raises(RuntimeError, match="somebody else holds"):
        OwnedFolder.create(tmp_path)
