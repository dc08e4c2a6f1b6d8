"""Generate the reference of all metrics from the registries; ``--check`` only compares."""

import argparse
import difflib
import sys
from collections.abc import Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector

from cpg_engine.snapshot import new_snapshot
from cpg_operator.metrics import OperatorMetrics
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.observability.pending import PendingCollector
from cpg_scheduler.observability.plugins import PluginsCollector
from cpg_scheduler.observability.requests import RequestMetrics
from cpg_scheduler.queueing.policy import RequeueBackoff
from cpg_scheduler.queueing.scheduling_queue import SchedulingQueue

FILE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
HEADER = """\
# Metrics

<!-- Generated from the registries by `python tools/generate_metrics.py`. Do not edit. -->

The active replica serves them at `/metrics`; a standby serves only `leader_election_master_status`. No label holds the
name of an object, except that of the lease, so the number of series does not grow with the cluster. Alerts and
dashboard: [monitoring](../operations/monitoring.md).
"""
SCHEDULER = """
## Scheduler

Metrics named `scheduler_` or `rest_client_` have the name and meaning of kube-scheduler's, so dashboards and alerts
carry over. `cpg_scheduler_` marks our own. A tree counts as one `podgroup`.

"""
OTHER_NAMES = """
### Other names than in the KEPs

KEP texts name some metrics that kube-scheduler 1.37 serves under another name or not at all. We use the name of
kube-scheduler.

| here | in a KEP or in kube-scheduler | why |
| --- | --- | --- |
"""
SAME = "kube-scheduler's name"
DIFFERENCES = (
    ("`scheduler_queued_entities`", "`scheduler_pending_entities` (KEP-5710)", SAME),
    (
        "`scheduler_workload_preemption_attempts_total`",
        "`scheduler_podgroup_preemption_attempts_total` (KEP-5710)",
        SAME,
    ),
    ("`scheduler_workload_preemption_victims`", "`scheduler_podgroup_preemption_victims` (KEP-5710)", SAME),
    (
        '`scheduler_preemption_evaluation_duration_seconds{preemptor="podgroup"}`',
        "`scheduler_podgroup_preemption_attempt_duration_seconds` (KEP-5710)",
        SAME,
    ),
    (
        '`scheduler_preemption_evaluation_duration_seconds{preemptor="pod"}`',
        '`scheduler_plugin_execution_duration_seconds{plugin="DefaultPreemption"}` (KEP-5710)',
        "the engine has no plugins",
    ),
    (
        "`cpg_scheduler_preemption_reprieved_total`",
        "`scheduler_podgroup_preemption_reprieved_total` (KEP-5710)",
        "kube-scheduler has none; ours counts plans for single pods too",
    ),
    (
        "`cpg_scheduler_mistakes_total`",
        '`result="error"` of attempts',
        "an exception ends an attempt before it has a result",
    ),
    (
        '`scheduler_pending_pods{queue="active"}`',
        '`scheduler_pending_pods{queue="pending"}`',
        "a tree in its cycle counts as active",
    ),
    ("none", "`scheduler_placement_evaluation_duration_seconds`", "the engine times whole decisions"),
    ("none", "`scheduler_framework_extension_point_duration_seconds`", "the engine has no extension points"),
    ("none", "`scheduler_permit_wait_duration_seconds`", "a gang is decided as a whole, so no pod waits for a permit"),
)
"""What is served, what other texts name, and why they differ."""
QUEUES = """
`queue="gated"` is as in kube-scheduler: the whole tree, with all its pods, while a pod has scheduling gates or a group
has fewer members than its minimum. `queue="incomplete"` also means a missing Workload or template.
"""
OPERATOR = """
## Operator

"""
COLUMNS = """\
| metric | type | labels | meaning |
| --- | --- | --- | --- |
"""
ELECTED = """\
| `leader_election_master_status` | gauge | `name` | 1 on the leader, 0 on a standby, by lease. |
"""


def rendered() -> str:
    """Return the expected content of the file."""
    pending = SchedulingQueue(RequeueBackoff())
    scheduler, state = SchedulerMetrics("", lambda: 0.0).registry, ClusterCache(new_snapshot(), (), "")
    for collector in (
        PendingCollector(state, pending, wall=lambda: 0.0, ages=dict),
        PluginsCollector(state, pending, ""),
        RequestMetrics(dict),
    ):
        scheduler.register(collector)
    parts = ((SCHEDULER, scheduler, _other_names()), (OPERATOR, OperatorMetrics().registry, ""))
    tables = (
        before + COLUMNS + "".join(sorted([*_rows(registry), ELECTED])) + after for before, registry, after in parts
    )
    return HEADER + "".join(tables)


def _other_names() -> str:
    """Return the metrics that other texts name otherwise."""
    return OTHER_NAMES + "".join(f"| {' | '.join(row)} |\n" for row in DIFFERENCES) + QUEUES


def _rows(registry: CollectorRegistry) -> Iterator[str]:
    # The registry has no public way to the labels of a metric that has no series yet.
    for collector in registry._collector_to_names:  # noqa: SLF001
        for family in _families(collector):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            labels = getattr(collector, "_labelnames", ()) or getattr(family, "_labelnames", ())
            listed = ", ".join(f"`{label}`" for label in labels)
            yield f"| `{name}` | {family.type} | {listed} | {family.documentation.removesuffix('.')}. |\n"


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
    difference = difflib.unified_diff(
        now.splitlines(keepends=True), expected.splitlines(keepends=True), "current", "expected"
    )
    sys.stdout.writelines(difference)
    return int(now != expected)


if __name__ == "__main__":
    sys.exit(main())
