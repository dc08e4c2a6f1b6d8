"""Chaos on a real control plane; run by ``make chaos``.

etcd, the API server, kube-scheduler, the controller manager and kwok's nodes run on loopback, with two replicas of our
scheduler and operator. Under load all of them are killed, suspended and cut off at random moments; what the API server
shows and its audit log has is checked meanwhile. The exit code is 1 if a rule did not hold.
"""

import argparse
import asyncio
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from result_files import load_average, measured_code, write_result

from cpg_chaos.run import ChaosRun
from cpg_chaos.testbed import SPEC
from cpg_lab import folders
from cpg_lab.clusters import Cluster


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return the exit code."""
    parser = argparse.ArgumentParser(prog="make chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the logs also if every rule has held")
    given = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell ignores SIGINT for programs in the background
        signal.signal(number, signal.default_int_handler)
    measured, before = measured_code(), load_average()
    with tempfile.TemporaryDirectory() as folder, Cluster(SPEC) as cluster:
        run = ChaosRun(cluster, Path(folder), seed=given.seed, minutes=given.minutes)
        try:
            asyncio.run(run.play())
        except KeyboardInterrupt:
            return 130
        finally:
            kept = (
                keep_logs(Path(folder), cluster) if given.keep or run.record.violations or sys.exc_info()[0] else None
            )
    violations: list[dict[str, Any]] = [
        {"second": round(one.at - run.record.began, 1), "rule": one.rule, "what": one.what, "faults": one.faults}
        for one in run.record.violations
    ]
    figures: dict[str, Any] = {"seed": given.seed, "minutes": given.minutes, **run.figures(), "violations": violations}
    write_result("chaos", {**figures, "load_before": before, "load_after": load_average()}, measured=measured)
    print(summary(figures))
    for one in violations:
        print(f"FAILED after {one['second']} s: {one['rule']}: {one['what']}")
        print("".join(f"    fault: {fault}\n" for fault in one["faults"]), end="")
    if kept:
        print(f"The logs are kept in {kept}")
    return 1 if violations else 0


def summary(figures: dict[str, Any]) -> str:
    """Return the figures as a short text."""
    lines = []
    for title in ("faults", "counts"):
        items = figures[title]
        lines.append(f"{title}: " + ", ".join(f"{number} {name}" for name, number in items.items()))
    lines.append(f"seconds until all was right: {figures['seconds_until_settled']}")
    return "\n".join(lines)


def keep_logs(folder: Path, cluster: Cluster) -> Path:
    """Copy all logs to where the lab keeps those of failed clusters."""
    kept = folders.kept_logs() / f"{time.strftime('%Y%m%d-%H%M%S')}-chaos"
    shutil.copytree(folder, kept, ignore=shutil.ignore_patterns("snapshot", "*.kubeconfig"))
    shutil.copytree(cluster.audit_log.parent / "logs", kept / "components")
    shutil.copy(cluster.audit_log, kept)
    return kept


if __name__ == "__main__":
    sys.exit(main())
