"""Folders of the lab: sources in the repository, programs in a per-user cache, clusters in folders of their own.

Programs are large (half a gigabyte) and slow to build, so they are cached outside the repository, for all clones.
Clusters that last as long as a `with` block are in the folder for temporary files; those that outlive a command are in
`.lab/` of the repository, where users see them.
"""

import os
import tempfile
from pathlib import Path

from cpg_lab.errors import LabError

_LAB = Path(__file__).resolve().parents[1]


def module_folder(name: str) -> Path:
    """Return the folder of a Go module of ours, which exists in a clone and not in an installed wheel."""
    folder = _LAB / "go" / name
    if not (folder / "go.mod").is_file():
        raise LabError(f"{folder} has no go.mod: the lab works from a clone of the repository only")
    return folder


def stages_file() -> Path:
    """Return kwok's configuration: the stages of pods and nodes."""
    return _LAB / "kwok" / "stages.yaml"


def toolchain_lock() -> Path:
    """Return the requirements file that pins the Go toolchain, with hashes."""
    return _LAB / "go" / "toolchain.lock"


def cache() -> Path:
    """Return the per-user cache; create it if it does not exist."""
    given = os.environ.get("KUBE_CPG_CACHE")
    xdg = os.environ.get("XDG_CACHE_HOME")
    base = Path(xdg) if xdg and Path(xdg).is_absolute() else Path.home() / ".cache"
    folder = Path(given).absolute() if given else base / "kube-cpg"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def temporary_clusters() -> Path:
    """Return the folder of clusters that end with their process; it is private, because it holds keys."""
    folder = Path(tempfile.gettempdir()) / f"kube-cpg-lab-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise LabError(f"{folder} is not a private folder of this user; remove it")
    return folder


def persistent_clusters() -> Path:
    """Return the folder of clusters that outlive the command that started them."""
    given = os.environ.get("KUBE_CPG_LAB")
    return Path(given).absolute() if given else _LAB.parent / ".lab"


def kept_logs() -> Path:
    """Return the folder where the logs of failed clusters are kept."""
    return cache() / "logs"
