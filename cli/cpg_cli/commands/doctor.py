"""``doctor``: check the installation, the user's rights and the labels of nodes."""

from importlib.metadata import version
from itertools import chain

import click

from cpg_cli.analysis.findings import CheckFinding, CheckLevel, warning
from cpg_cli.analysis.installation_checks import (
    collision_checks,
    kind_checks,
    process_checks,
    right_checks,
    server_checks,
    webhook_checks,
)
from cpg_cli.analysis.object_checks import (
    finalizer_checks,
    pod_checks,
    priority_checks,
    topology_checks,
)
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.facts import ClusterFacts, FactFinder
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.failures import ExitCode
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options, output_options
from cpg_cli.rendering.console import progress_of
from cpg_cli.rendering.documents import print_document
from cpg_cli.rendering.tables import Column, print_table

EXAMPLES = """\b
Examples:
  kubectl cpg doctor                     the whole cluster
  kubectl cpg doctor -n team-a           the objects of one namespace
  kubectl cpg doctor -o json             for monitoring; the exit code is 1 if a check fails
"""


@click.command(epilog=EXAMPLES)
@cluster_options
@output_options
def command(cluster: ClusterOptions, how: OutputOptions) -> int:
    """Check the installation, your rights and the labels of nodes, and say what to do.

    The exit code is 1 if a check fails. Warnings do not count.
    """
    finder = FactFinder(ApiServer(cluster), cluster.namespace)
    with progress_of(how) as report:
        facts = finder.collect(report)
    findings = check_all(facts, version("kube-cpg"))
    if how.output in {"json", "yaml"}:
        print_document(how, {"checks": findings})
    else:
        columns = [Column(""), Column("CHECK"), Column("FOUND", wraps=True)]
        rows = [(one.level, one.check, f"{one.text}\nnext: {one.next}" if one.next else one.text) for one in findings]
        print_table(how, columns, rows)
    return ExitCode.NEGATIVE if any(one.level == CheckLevel.FAIL for one in findings) else ExitCode.FINE


def check_all(facts: ClusterFacts, client_version: str) -> list[CheckFinding]:
    """Return the findings of all checks on some facts."""
    cache = OfflineScheduler(facts.objects.to_dump()).cache
    found = chain(
        server_checks(facts),
        kind_checks(facts),
        process_checks(facts, client_version),
        webhook_checks(facts),
        right_checks(facts),
        topology_checks(facts, cache),
        collision_checks(facts),
        pod_checks(facts, cache),
        priority_checks(facts, cache),
        finalizer_checks(facts),
    )
    skipped = [warning(name, f"not checked: {reason}") for name, reason in facts.errors.items()]
    if facts.unread:
        skipped.append(warning("not checked", f"you may not read {', '.join(sorted(facts.unread))}"))
    return [*found, *skipped]
