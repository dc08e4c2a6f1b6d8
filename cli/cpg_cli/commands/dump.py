"""``dump``: a snapshot of the cluster from which every decision can be made again."""

import gzip
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.sources import live_cluster
from cpg_cli.failures import usage_error
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options
from cpg_cli.rendering.console import progress_of
from cpg_scheduler.debug.dump import encoded

EXAMPLES = """\b
Examples:
  kubectl cpg dump -o cluster.json.gz
  kubectl cpg replay cluster.json.gz train
"""


@click.command(epilog=EXAMPLES)
@click.option("-o", "--output", "file", metavar="FILE", default="-", help="The file, compressed if it ends in .gz.")
@click.option("--scheduler-name", metavar="NAME", default="cpg-scheduler", help="The name of the kube-cpg scheduler.")
@cluster_options
def command(cluster: ClusterOptions, file: str, scheduler_name: str) -> None:
    """Write a snapshot of what you may list: nodes, pods, groups and all else that a decision depends on.

    It has no environment, arguments, Secrets or ConfigMaps. Annotations, owners and conditions that scheduling does not
    read are left out.
    """
    with progress_of(OutputOptions()) as report:
        found, missing = live_cluster(ApiServer(cluster), scheduler_name=scheduler_name, now=time.time(), report=report)
    for problem in missing:
        click.echo(f"warning: {problem}", err=True)
    if file == "-":
        for piece in encoded(found):
            sys.stdout.buffer.write(piece)
        return
    try:
        _write(Path(file), encoded(found))
    except OSError as error:
        raise usage_error(f"{file}: {error.strerror}") from error
    click.echo(f"{file}: {len(found.nodes)} nodes, {len(found.pods)} pods", err=True)


def _write(path: Path, pieces: Iterator[bytes]) -> None:
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as target:
        for piece in pieces:
            target.write(piece)
