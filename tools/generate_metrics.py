"""Write the reference of the scheduler's metrics, or with ``--check`` tell whether it is what the registry says."""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import Metric
from prometheus_client.registry import Collector

from cpg_engine.gangs.world import new_world
from cpg_scheduler.caches.state import State
from cpg_scheduler.census import Census
from cpg_scheduler.metrics import Metrics
from cpg_scheduler.pending import Backoff, Pending

FILE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
HEADER = """\
# Metrics of the scheduler

<!-- Generated from the registry by `python tools/generate_metrics.py`. Do not edit. -->

Who leads serves them under `/metrics`; who stands by serves `leader_election_master_status` alone. What begins with
`scheduler_` has the name and the meaning that kube-scheduler gives it, so that boards and alerts carry over; what
begins with `cpg_scheduler_` is our own. A whole tree counts as one `podgroup`. No label ever holds the name of an
object, but for that of the lease, so the number of series does not grow with the cluster.

| metric | type | labels | what it tells |
| --- | --- | --- | --- |
"""
ELECTED = """\
| `leader_election_master_status` | gauge | `name` | Whether this replica leads (1) or stands by (0), by lease. |
"""


def rendered() -> str:
    """Return what the file ought to hold."""
    pending = Pending(Backoff())
    metrics = Metrics("", pending, lambda: 0.0)
    metrics.registry.register(Census(State(new_world(), (), ""), pending, wall=lambda: 0.0, ages=dict))
    return HEADER + "".join(sorted([*_rows(metrics), ELECTED]))


def _rows(metrics: Metrics) -> Iterator[str]:
    # The registry has no public way to the labels of a metric that has no series yet.
    for collector in metrics.registry._collector_to_names:  # noqa: SLF001
        for family in _families(collector):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            listed = ", ".join(f"`{label}`" for label in labels)
            yield f"| `{name}` | {family.type} | {listed} | {family.documentation} |\n"


def _families(collector: Collector) -> Iterator[Metric]:
    yield from collector.describe() if hasattr(collector, "describe") else collector.collect()


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail and show what differs")
    expected = rendered()
    if not parser.parse_args().check:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(expected)
        return 0
    now = FILE.read_text() if FILE.exists() else ""
    difference = difflib.unified_diff(now.splitlines(keepends=True), expected.splitlines(keepends=True), "is", "ought")
    sys.stdout.writelines(difference)
    return int(now != expected)


if __name__ == "__main__":
    sys.exit(main())
