"""Results as files: what was measured, with what is known of the machine, of the versions and of the code.

A figure is worth something to who can measure it again. So a result tells whether it is that of a commit as it stands,
and where it is not, or where that is not known, this is said out loud; it is kept all the same.
"""

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cpg_lab.versions import BY_NAME

RESULTS = Path(__file__).parent / "results"
UNKNOWN = "unknown"
DIRTY = "-dirty"
PROGRAMS = ("kube-apiserver", "kube-scheduler", "etcd")


@dataclass(frozen=True)
class Code:
    """Which code was measured: a commit as it stands, or one that was changed, or nobody knows."""

    commit: str
    is_clean: bool

    @classmethod
    def of(cls, described: str) -> "Code":
        """Return the code by what git says of it, which may be nothing."""
        return cls(described or UNKNOWN, is_clean=bool(described) and not described.endswith(DIRTY))

    @property
    def warning(self) -> str:
        """What is to be said about its figures; nothing where all is well."""
        if self.is_clean:
            return ""
        why = f"{self.commit} is not as committed" if self.commit != UNKNOWN else "git does not say which commit it is"
        return f"NO FIGURES TO QUOTE: {why}"


def code() -> Code:
    """Return which code this is."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607  # whichever git there is
            cwd=RESULTS.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return Code.of("")
    return Code.of(found.stdout.strip())


def keep(kind: str, figures: Mapping[str, object], *, measured: Code, folder: Path = RESULTS) -> Path:
    """Write figures to a file of their own, and say where they are, and what is wrong with them.

    ``measured`` is to be asked for before measuring: afterwards, somebody may have committed.
    """
    record = {"machine": machine(), "versions": {**asdict(measured), **versions()}, **figures}
    folder.mkdir(exist_ok=True)
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{kind}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"raw results: {path}")
    if measured.warning:
        print(measured.warning)
    return path


def machine() -> dict[str, object]:
    """Return what is known of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1024**3, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
    }


def versions() -> dict[str, str]:
    """Return the versions of what runs beside our own code."""
    return {"python": platform.python_version(), **{name: BY_NAME[name].version for name in PROGRAMS}}


def load() -> float:
    """Return how many processes have wanted a core lately; above the number of cores, seconds are worth little."""
    return round(os.getloadavg()[0], 2)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has held."""
    return _status_mb(pid, "VmHWM")


def resident_mb(pid: int) -> float:
    """Return the memory that a process holds now."""
    return _status_mb(pid, "VmRSS")


def _status_mb(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))
