"""What is shown and kept of the outcomes: a row for a case, and all figures with what is known of the machine."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median

from backlogs import Case
from racing import OURS, PEER, Outcome

from cpg_lab.versions import BY_NAME

RESULTS = Path(__file__).parent / "results"
HEADING = (
    f"{'case':<25}{'ours':>16}{'kube-scheduler':>24}{'ratio':>9}"
    f"{'goal':>7}{'binds/s':>9}{'of limit':>10}{'peak MB':>12}"
)


def row(case: Case, outcomes: Sequence[Outcome], limit: float) -> str:
    """Return a row of the table: medians, and of one that was given up how far it came."""
    ours, peer = ([one for one in outcomes if one.contender == contender] for contender in (OURS, PEER))
    told = f"{case.title:<25}{_time(ours):>16}{_time(peer):>24}"
    if ours and peer:
        is_bound = ">" if any(one.bound < one.pods for one in peer) else ""
        told += f"{f'{is_bound}{_median(peer) / _median(ours):.1f}x':>9}"
    else:
        told += f"{'-':>9}"
    rate = median(one.rate for one in ours) if ours else 0.0
    memory = " / ".join(f"{max(one.peak_mb for one in some):.0f}" if some else "-" for some in (ours, peer))
    return f"{told}{f'{case.goal:g}x':>7}{rate:>9.0f}{rate / limit:>10.0%}{memory:>12}"


def keep(found: Mapping[str, Sequence[Outcome]], *, quick: bool) -> Path:
    """Write the raw results, and what is known of the machine, to a file of their own."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607  # whichever git there is
        cwd=RESULTS.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    record = {
        "machine": {
            "cores": os.cpu_count(),
            "memory_gb": round(memory / 1024**3, 1),
            "kernel": platform.release(),
            "architecture": platform.machine(),
        },
        "versions": {
            "commit": commit.stdout.strip(),
            "python": platform.python_version(),
            **{name: BY_NAME[name].version for name in ("kube-apiserver", "kube-scheduler", "etcd")},
        },
        "quick": quick,
        "outcomes": {name: [asdict(one) for one in some] for name, some in found.items()},
    }
    path = RESULTS / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-peer.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def _median(outcomes: Sequence[Outcome]) -> float:
    return median(one.seconds for one in outcomes)


def _time(outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return "-"
    worst = min(outcomes, key=lambda one: one.bound)
    given_up = f"({worst.bound} bound) > " if worst.bound < worst.pods else ""
    return f"{given_up}{_median(outcomes):.2f} s"
