"""``simulate``: what would happen if some files were submitted."""

import time

import click

from cpg_cli.analysis.outcome import outcome_of
from cpg_cli.analysis.simulation import simulate, timestamp
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.documents import read_documents
from cpg_cli.cluster.manifests import read_manifests
from cpg_cli.cluster.overrides import with_overrides
from cpg_cli.cluster.sources import LIVE, read_cluster
from cpg_cli.failures import ExitCode, usage_error
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options, output_options
from cpg_cli.rendering.console import console_of, progress_of
from cpg_cli.rendering.documents import print_document
from cpg_cli.rendering.outcomes import print_outcome

EXAMPLES = """\b
Examples:
  kubectl cpg simulate -f train.yaml
  kubectl cpg simulate -f examples/02-tree --cluster examples/nodes.yaml
  kubectl cpg simulate -f train.yaml --set workers.minCount=3 --scale replica=3
  helm template . | kubectl cpg simulate -f - --cluster nodes.yaml -o json

\b
Exit codes: 0 fits, 1 would not fit, 2 the files are wrong, 3 no rights, 4 the server failed.
"""


@click.command(epilog=EXAMPLES)
@click.option(
    "-f", "--filename", "files", metavar="FILE|DIR|-", multiple=True, required=True, help="Manifests; can be repeated."
)
@click.option(
    "--cluster",
    "source",
    metavar="live|DUMP|FILE",
    default=LIVE,
    show_default=True,
    help="The cluster: live, a dump, or a file with nodes (and pods, if some run).",
)
@click.option(
    "--set", "settings", metavar="NAME.FIELD=VALUE", multiple=True, help="Change a group, template or owner first."
)
@click.option("--scale", "scales", metavar="NAME=NUMBER", multiple=True, help="Change replicas first.")
@click.option("--strict", is_flag=True, help="Exit with 1 if any pod waits, also beyond a minimum.")
@click.option("--scheduler-name", metavar="NAME", default="", help="The name of the kube-cpg scheduler.")
@cluster_options
@output_options
def command(
    cluster: ClusterOptions,
    files: tuple[str, ...],
    source: str,
    settings: tuple[str, ...],
    scales: tuple[str, ...],
    scheduler_name: str,
    how: OutputOptions,
    *,
    strict: bool,
) -> ExitCode:
    """Say what would happen if manifests were submitted: the nodes of each pod, and which pods would be evicted.

    Nothing is created. Groups, Workloads, pods and the owners that kube-cpg knows are simulated with the code of the
    operator and the scheduler, and their pods as their controllers create them.
    """
    server, now = ApiServer(cluster), time.time()
    documents = with_overrides(read_documents(files), settings, scales)
    namespace = cluster.namespace or (server.namespace if source == LIVE else "default")
    submitted = read_manifests(documents, namespace=namespace, created=timestamp(now))
    with progress_of(how) as report:
        base, missing = read_cluster(source, server, now=now, report=report, scheduler_name=scheduler_name)
    found = simulate(base, submitted, now=now)
    units = found.units()
    if not units:
        hint = f"set schedulerName: {base.scheduler_name} in the pod templates"
        raise usage_error(f"no group, and no pod with schedulerName {base.scheduler_name} in the files", hint)
    outcome = outcome_of(found.scheduler, units, notes=(*missing, *found.notes), ignored=found.ignored)
    if how.output in {"json", "yaml"}:
        print_document(how, outcome)
    else:
        print_outcome(console_of(how), outcome, all_nodes=how.output == "wide")
    fits = outcome.fits and not (strict and outcome.placed_pods < outcome.pods)
    return ExitCode.FINE if fits else ExitCode.NEGATIVE
