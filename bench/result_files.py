"""Result files: figures, with machine, versions and commit.

Figures can only be reproduced if the measured code is known. So a result file says whether it was a clean commit, and a
warning is printed where it was not, or where that is unknown.
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
class MeasuredCode:
    """The code that was measured: a commit, and whether the working tree was clean."""

    commit: str
    is_clean: bool

    @classmethod
    def of(cls, described: str) -> "MeasuredCode":
        """Return the code by the output of git describe, which is empty outside of a repository."""
        return cls(described or UNKNOWN, is_clean=bool(described) and not described.endswith(DIRTY))

    @property
    def warning(self) -> str:
        """A warning about the figures; empty if the working tree was clean."""
        if self.is_clean:
            return ""
        why = f"{self.commit} has uncommitted changes" if self.commit != UNKNOWN else "git does not know the commit"
        return f"NO FIGURES TO QUOTE: {why}"


def measured_code() -> MeasuredCode:
    """Return the commit of this checkout."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty"],  # noqa: S607  # the git on PATH
            cwd=RESULTS.parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return MeasuredCode.of("")
    return MeasuredCode.of(found.stdout.strip())


def write_result(kind: str, figures: Mapping[str, object], *, measured: MeasuredCode, folder: Path = RESULTS) -> Path:
    """Write figures to a new file, and print its path and the warning about the code.

    Call ``measured_code`` before the measurement: the commit may change meanwhile.
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
    """Return the properties of the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 1024**3, 1),
        "kernel": platform.release(),
        "architecture": platform.machine(),
    }


def versions() -> dict[str, str]:
    """Return the versions of Python and of the programs of the cluster."""
    return {"python": platform.python_version(), **{name: BY_NAME[name].version for name in PROGRAMS}}


def load_average() -> float:
    """Return the load average of the last minute; above the number of cores, seconds mean little."""
    return round(os.getloadavg()[0], 2)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """Return the peak memory of a process."""
    return _status_mb(pid, "VmHWM")


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    return _status_mb(pid, "VmRSS")


def _status_mb(pid: int, name: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))
