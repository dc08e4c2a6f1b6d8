"""Generate the chart's Grafana dashboard; ``--check`` only compares.

``BOARD`` has the rows, the panels and their expressions. `@` in an expression stands for the selected namespace.
"""

import argparse
import difflib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parents[1] / "charts" / "kube-cpg" / "files" / "dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
CHOSEN = 'namespace="$namespace"'
WIDTH, HEIGHT, ACROSS = 8, 8, 24
Plain = dict[str, Any]


class Panel(NamedTuple):
    """A graph: its title, unit, expressions by legend, and description."""

    title: str
    unit: str
    shows: dict[str, str]
    description: str = ""


def rate(metric: str, by: str) -> str:
    """Return the rate of a counter by a label."""
    return f"sum by ({by}) (rate({metric}{{@}}[$__rate_interval]))"


def quantiles(metric: str, by: str = "") -> dict[str, str]:
    """Return the median and the 99th percentile of a histogram, optionally by a label."""
    labels, legend = (f"le, {by}", f" {{{{{by}}}}}") if by else ("le", "")
    buckets = f"sum by ({labels}) (rate({metric}_bucket{{@}}[$__rate_interval]))"
    return {
        f"{name}{legend}": f"histogram_quantile({share}, {buckets})" for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def of_ours(metric: str) -> str:
    """Return a metric of any process, limited to our processes."""
    return f"{metric} and on (namespace, pod) (cpg_scheduler_build_info{{@}} or cpg_operator_build_info{{@}})"


BOARD: dict[str, tuple[Panel, ...]] = {
    "What waits": (
        Panel("Pods without a node, by queue", "short", {"{{queue}}": "sum by (queue) (scheduler_pending_pods{@})"}),
        Panel(
            "Pods that wait, by reason",
            "short",
            {"{{reason}}": "sum by (reason) (cpg_scheduler_waiting_pods{@})"},
            "The finding of the last attempt; held: not tried; new: no attempt yet.",
        ),
        Panel(
            "Oldest that waits, by reason",
            "s",
            {"{{reason}}": "max by (reason) (cpg_scheduler_oldest_waiting_seconds{@})"},
        ),
    ),
    "Placing": (
        Panel("Pods bound", "ops", {"{{result}}": rate("cpg_scheduler_binds_total", "result")}),
        Panel("Trees and single pods placed", "ops", {"{{type}}": rate("cpg_scheduler_tree_binds_count", "type")}),
        Panel(
            "From creation to the last bind",
            "s",
            quantiles("cpg_scheduler_tree_placement_duration_seconds", "type"),
        ),
        Panel("Attempts", "ops", {"{{result}}": rate("scheduler_podgroup_schedule_attempts_total", "result")}),
        Panel(
            "Duration of an attempt",
            "s",
            quantiles("scheduler_podgroup_scheduling_attempt_duration_seconds"),
        ),
        Panel("From decision to the last bind", "s", quantiles("cpg_scheduler_tree_bind_duration_seconds", "type")),
        Panel("Findings of searches", "ops", {"{{finding}}": rate("cpg_scheduler_tree_findings_total", "finding")}),
        Panel("Held, by reason", "ops", {"{{reason}}": rate("cpg_scheduler_held_total", "reason")}),
        Panel(
            "Domains tried",
            "ops",
            {"{{result}}": rate("scheduler_placement_evaluations_total", "result")},
            "Domains in which a group with a required topology was tried.",
        ),
        Panel("Claims for devices", "ops", {"{{result}}": rate("cpg_scheduler_device_claims_total", "result")}),
        Panel(
            "Until the devices of a batch are ready",
            "s",
            quantiles("cpg_scheduler_device_prebind_duration_seconds"),
            "Its claims are written, and binding conditions of its devices are waited for.",
        ),
    ),
    "Preemption": (
        Panel(
            "Plans",
            "ops",
            {
                "{{result}}": rate("scheduler_workload_preemption_attempts_total", "result"),
                "for pods without a group": "sum(rate(scheduler_preemption_attempts_total{@}[$__rate_interval]))",
            },
        ),
        Panel(
            "Evicted",
            "ops",
            {
                "pods for groups": "sum(rate(scheduler_workload_preemption_victims_sum{@}[$__rate_interval]))",
                "pods for pods": "sum(rate(scheduler_preemption_victims_sum{@}[$__rate_interval]))",
                "units": "sum(rate(scheduler_preemption_workload_disruptions_sum{@}[$__rate_interval]))",
                "against budgets": "sum(rate(scheduler_preemption_pdb_violations_total{@}[$__rate_interval]))",
                "reprieved": "sum(rate(cpg_scheduler_preemption_reprieved_total{@}[$__rate_interval]))",
            },
            "Units are single pods and groups evicted as a whole; reprieved units were candidates and stay.",
        ),
        Panel(
            "Duration of planning and of evicting",
            "s",
            {
                f"{name}, {what}": expression
                for what, metric in (
                    ("planning", "scheduler_preemption_evaluation_duration_seconds"),
                    ("evicting", "scheduler_preemption_execution_duration_seconds"),
                )
                for name, expression in quantiles(metric).items()
            },
        ),
    ),
    "Trees": (
        Panel("Trees, by health", "short", {"{{state}}": "sum by (state) (cpg_operator_trees{@})"}),
        Panel(
            "Partial trees",
            "s",
            {
                "hold nodes for": "max(cpg_operator_partial_seconds{@})",
                "release overdue by": "max(cpg_operator_release_overdue_seconds{@})",
            },
        ),
        Panel("Writes of the operator", "ops", {"{{result}}": rate("cpg_operator_writes_total", "result")}),
        Panel(
            "Operator behind",
            "short",
            {"trees": "max(cpg_operator_queue_length{@})", "writes": "max(cpg_operator_writes_pending{@})"},
        ),
        Panel("Duration of a reconcile", "s", quantiles("cpg_operator_reconcile_seconds")),
        Panel(
            "Should be zero",
            "short",
            {
                "over-committed nodes": "max(cpg_scheduler_overcommitted_nodes{@})",
                "defects in the scheduler": "sum(increase(cpg_scheduler_mistakes_total{@}[1h]))",
                "defects in the operator": "sum(increase(cpg_operator_mistakes_total{@}[1h]))",
                "missed hints": "sum(increase(cpg_scheduler_missed_hints_total{@}[1h]))",
            },
        ),
    ),
    "Processes": (
        Panel("Active replicas", "bool_yes_no", {"{{pod}}": "max by (pod, name) (leader_election_master_status{@})"}),
        Panel(
            "Silence of watches",
            "s",
            {
                "{{resource}}": "max by (resource) (cpg_scheduler_watch_silence_seconds{@})",
                "operator {{resource}}": "max by (resource) (cpg_operator_watch_silence_seconds{@})",
            },
            "A healthy watch is renewed every minute.",
        ),
        Panel(
            "Size of the cluster",
            "short",
            {
                "nodes": "max(cpg_scheduler_nodes{@})",
                "pods": "max(cpg_scheduler_pods{@})",
                "pod classes": "max(cpg_scheduler_pod_classes{@})",
                "assumed pods": "max(cpg_scheduler_assumed_binds{@})",
            },
        ),
        Panel("Memory", "bytes", {"{{pod}}": f"max by (pod) ({of_ours('process_resident_memory_bytes{@}')})"}),
        Panel(
            "CPU",
            "short",
            {"{{pod}}": f"max by (pod) ({of_ours('rate(process_cpu_seconds_total{@}[$__rate_interval])')})"},
            "Cores. Each process decides on one core, so one core is its limit.",
        ),
        Panel(
            "Versions",
            "short",
            {
                "scheduler {{version}}": "count by (version) (cpg_scheduler_build_info{@})",
                "operator {{version}}": "count by (version) (cpg_operator_build_info{@})",
            },
        ),
    ),
}


def rendered() -> str:
    """Return the dashboard as JSON for Grafana."""
    namespaces = "label_values(cpg_scheduler_build_info, namespace)"
    board = {
        "title": "kube-cpg",
        "uid": "kube-cpg",
        "tags": ["kube-cpg", "scheduling"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "namespace",
                    "label": "Namespace",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": {"query": namespaces, "refId": "namespace"},
                    "refresh": 2,
                },
            ]
        },
        "panels": list(_panels()),
    }
    return json.dumps(board, indent=2) + "\n"


def _panels() -> Iterator[Plain]:
    """Yield the panels, three across below the title of their row."""
    top = number = 0
    for title, panels in BOARD.items():
        number += 1
        place = {"x": 0, "y": top, "w": ACROSS, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        for index, panel in enumerate(panels):
            number += 1
            down, across = divmod(index * WIDTH, ACROSS)
            yield _drawn(panel, number, {"x": across, "y": top + down * HEIGHT, "w": WIDTH, "h": HEIGHT})
        top += -(-len(panels) * WIDTH // ACROSS) * HEIGHT


def _drawn(panel: Panel, number: int, place: Plain) -> Plain:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": {"fillOpacity": 10}}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": expression.replace("@", CHOSEN),
                "legendFormat": legend,
            }
            for index, (legend, expression) in enumerate(panel.shows.items())
        ],
    }


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail and show what differs")
    expected = rendered()
    if not parser.parse_args().check:
        FILE.write_text(expected, "utf-8")
        return 0
    now = FILE.read_text("utf-8") if FILE.exists() else ""
    difference = difflib.unified_diff(
        now.splitlines(keepends=True), expected.splitlines(keepends=True), "current", "expected"
    )
    sys.stdout.writelines(difference)
    return int(now != expected)


if __name__ == "__main__":
    sys.exit(main())
