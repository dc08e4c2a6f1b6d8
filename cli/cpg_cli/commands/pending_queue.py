"""``queue``: what waits, in the order in which it is tried."""

import time
from collections.abc import Sequence

import click

from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_cli.analysis.waiting import UNKNOWN, QueueRow, rows_of_cache, rows_of_leader
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.leader import LeaderPages
from cpg_cli.cluster.listing import list_objects
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.failures import CommandError, ExitCode
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options, output_options
from cpg_cli.rendering.ages import short_age
from cpg_cli.rendering.console import console_of, progress_of
from cpg_cli.rendering.documents import print_document
from cpg_cli.rendering.tables import Column, print_table, warn, warn_of_unread

EXAMPLES = """\b
Examples:
  kubectl cpg queue                your namespace; positions count those of all namespaces
  kubectl cpg queue -A             all namespaces
  kubectl cpg queue -o json        with the source: scheduler or conditions
"""
SCHEDULER, CONDITIONS = "scheduler", "conditions"
KINDS = (Pod, PriorityClass)
"""What the order of the queue depends on, beside groups."""
SHORT = {"when an event may make it schedulable": "on a change", "when it is first in the queue": "in turn"}
"""When units are tried, as the table says it."""


@click.command(epilog=EXAMPLES)
@cluster_options
@output_options
def command(cluster: ClusterOptions, how: OutputOptions) -> None:
    """List what waits, in the order in which it is tried.

    The scheduler that leads is asked. Without the right to port-forward to it, the order follows from priority and age,
    and the reasons from conditions.
    """
    server = ApiServer(cluster)
    source, total, rows = _rows(server, how)
    if not cluster.all_namespaces:
        rows = [row for row in rows if row.namespace == server.namespace]
    if how.output in {"json", "yaml"}:
        print_document(how, {"source": source, "waiting": total, "units": rows})
        return
    if rows:
        _print(how, rows)
    else:
        where = "" if cluster.all_namespaces else f" in namespace {server.namespace}"
        console_of(how).print(f"nothing waits{where}")
    explanation = "scheduler, live" if source == SCHEDULER else "status of pods and groups, which is written seldom"
    console_of(how).print(f"SOURCE  {explanation}")


def _rows(server: ApiServer, how: OutputOptions) -> tuple[str, int, list[QueueRow]]:
    """Return the source, how many units wait, and their rows."""
    try:
        return (SCHEDULER, *rows_of_leader(LeaderPages(server).get("/debug/explain/")))
    except CommandError as error:
        warn(how, [f"the scheduler is not asked: {error}"])
    with progress_of(how) as report:
        found = list_objects(server, kinds=KINDS, report=report)
        if found.unread:
            warn(how, [f"positions count namespace {server.namespace} alone, because you may not list the others"])
            found = list_objects(server, namespace=server.namespace, kinds=KINDS, report=report)
    if "pods" in found.unread:
        raise CommandError(found.unread["pods"], code=ExitCode.FORBIDDEN, hint="ask for the right to list pods")
    warn_of_unread(how, found.unread, "positions and reasons may be wrong")
    rows = list(rows_of_cache(OfflineScheduler(found.to_dump()).cache))
    return CONDITIONS, len(rows), rows


def _print(how: OutputOptions, rows: Sequence[QueueRow]) -> None:
    wide = how.output == "wide"
    columns = [Column("POSITION", right=True), Column("ROOT"), Column("OWNER"), Column("PRIORITY", right=True)]
    columns += [Column("ATTEMPTS", right=True), Column("AGE", right=True), Column("NEXT TRY")]
    columns += [Column("API")] if wide else []
    now = time.time()
    cells = [
        [
            str(row.position),
            row.root,
            row.owner or "-",
            str(row.priority),
            UNKNOWN if row.attempts is None else str(row.attempts),
            short_age(row.since, now) or UNKNOWN,
            SHORT.get(row.next_try, row.next_try),
            *([row.flavour or "-"] if wide else []),
        ]
        for row in rows
    ]
    print_table(how, columns, cells, [row.reason for row in rows])
