"""``explain``: why a tree or pod waits."""

import click
import msgspec

from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.listing import list_objects
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.cluster.targets import unit_of
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options, output_options
from cpg_cli.rendering.console import console_of, progress_of


@click.command()
@click.argument("target")
@cluster_options
@output_options
def command(cluster: ClusterOptions, target: str, how: OutputOptions) -> None:
    """Say why TARGET waits: a group, a pod, or the owner of a tree."""
    server = ApiServer(cluster)
    with progress_of(how) as report:
        scheduler = OfflineScheduler(list_objects(server, report=report).to_dump())
    unit = unit_of(scheduler.cache, server.namespace, target)
    console_of(how).print_json(msgspec.json.encode(scheduler.explainer.explain(unit)).decode())
