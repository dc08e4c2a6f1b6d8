"""``dump``: a snapshot of the cluster from which every decision can be made again."""

import gzip
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import click

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.leader import LeaderPages
from cpg_cli.cluster.sources import live_cluster, parse_dump
from cpg_cli.failures import CommandError, usage_error
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options
from cpg_cli.rendering.console import progress_of
from cpg_scheduler.debug.dump import Dump, encoded

EXAMPLES = """\b
Examples:
  kubectl cpg dump -o cluster.json.gz
  kubectl cpg replay cluster.json.gz train
"""
PAGE = "/debug/dump"


class SourcedDump(NamedTuple):
    """A dump, its source, and what is not known."""

    dump: Dump
    source: str
    missing: tuple[str, ...] = ()


@click.command(epilog=EXAMPLES)
@click.option("-o", "--output", "file", metavar="FILE", default="-", help="The file, compressed if it ends in .gz.")
@click.option(
    "--source",
    type=click.Choice(["auto", "scheduler", "view"]),
    default="auto",
    show_default=True,
    help="Ask the scheduler, or take what you may list; by default the first of them that your rights allow.",
)
@click.option("--scheduler-name", metavar="NAME", default=SCHEDULER_NAME, help="The name of the kube-cpg scheduler.")
@cluster_options
def command(cluster: ClusterOptions, file: str, source: str, scheduler_name: str) -> None:
    """Write a snapshot of nodes, pods, groups and all else that a decision depends on.

    It has no environment, arguments, Secrets or ConfigMaps. Annotations, owners and conditions that scheduling does not
    read are left out. The scheduler's own has its settings, its queue and its assumed binds as well.
    """
    found = _snapshot(ApiServer(cluster), source, scheduler_name)
    for problem in found.missing:
        click.echo(f"warning: {problem}", err=True)
    if file == "-":
        sys.stdout.buffer.writelines(encoded(found.dump))
        return
    try:
        _write(Path(file), encoded(found.dump))
    except OSError as error:
        raise usage_error(f"{file}: {error.strerror}") from error
    click.echo(f"{file}: {len(found.dump.nodes)} nodes, {len(found.dump.pods)} pods, from {found.source}", err=True)


def _snapshot(server: ApiServer, source: str, scheduler_name: str) -> SourcedDump:
    missing: tuple[str, ...] = ()
    if source != "view":
        try:
            return SourcedDump(parse_dump(PAGE, LeaderPages(server, scheduler_name).get(PAGE)), "the scheduler")
        except CommandError as error:
            if source == "scheduler":
                raise
            missing = (f"the scheduler could not be asked: {error}",)
    with progress_of(OutputOptions()) as report:
        found = live_cluster(server, scheduler_name=scheduler_name, now=time.time(), report=report)
    return SourcedDump(found.dump, "your view of the cluster", (*missing, *found.missing))


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as target:
        for piece in pieces:
            target.write(piece)
