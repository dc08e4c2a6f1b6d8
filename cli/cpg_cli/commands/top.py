"""``top``: what is free in blocks, racks and nodes, and what would fit."""

from collections.abc import Sequence

import click

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.quantity import MILLI
from cpg_cli.analysis.capacity import (
    DomainCapacity,
    Shape,
    labelled_levels,
    nested_levels,
    offered_resources,
    parse_shape,
    survey_capacity,
    used_levels,
)
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.listing import list_objects
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.failures import CommandError, ExitCode
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options, output_options
from cpg_cli.rendering.console import console_of, progress_of
from cpg_cli.rendering.documents import print_document
from cpg_cli.rendering.tables import Column, print_table, warn_of_unread

EXAMPLES = """\b
Examples:
  kubectl cpg top                                  what is free, by the labels that groups use
  kubectl cpg top --for gpu=8,cpu=64               how many such pods fit into each domain
  kubectl cpg top --for gpu=8 --by topology.kubernetes.io/zone --nodes
"""
HIDDEN = ("ephemeral-storage", "pods")
"""Resources that only ``-o wide`` shows."""
BYTES, UNITS = ("memory", "ephemeral-storage"), ("", "Ki", "Mi", "Gi", "Ti", "Pi")


@click.command(epilog=EXAMPLES)
@click.option("--for", "shape_text", metavar="SHAPE", help='What one pod requests, such as "gpu=8,cpu=64,memory=1Ti".')
@click.option("--by", "labels", metavar="LABEL", multiple=True, help="A node label, the widest first; repeat it.")
@click.option("--tolerate", "tolerated", metavar="KEY", multiple=True, help="A taint that the pods tolerate.")
@click.option("--nodes", "with_nodes", is_flag=True, help="Show nodes, too.")
@cluster_options
@output_options
def command(
    cluster: ClusterOptions,
    shape_text: str | None,
    labels: tuple[str, ...],
    tolerated: tuple[str, ...],
    *,
    with_nodes: bool,
    how: OutputOptions,
) -> None:
    """Show what is free in each domain, the largest gang that fits, and how fragmented the rest is."""
    server = ApiServer(cluster)
    with progress_of(how) as report:
        found = list_objects(server, kinds=(Node, Pod), report=report)
    if "nodes" in found.unread:
        raise CommandError(found.unread["nodes"], code=ExitCode.FORBIDDEN, hint="ask an administrator for this right")
    warn_of_unread(how, found.unread.keys() & {"pods"}, "what pods hold counts as free")
    cache = OfflineScheduler(found.to_dump()).cache
    shape = parse_shape(shape_text, offered_resources(cache)) if shape_text is not None else None
    chains: Sequence[tuple[str, ...]] = [labels]
    if not labels:
        chains = nested_levels(cache, used_levels(cache) or labelled_levels(cache)) or [()]
    tables = [
        survey_capacity(cache, chain, shape, with_nodes=with_nodes or not chain, tolerated=tolerated)
        for chain in chains
    ]
    if how.output in {"json", "yaml"}:
        domains = [*tables[0], *(one for table in tables[1:] for one in table[1:])]
        print_document(how, {"shape": shape, "levels": chains, "domains": domains})
        return
    for chain, table in zip(chains, tables, strict=True):
        _print(how, chain, table, shape, offered_resources(cache))


def _print(
    how: OutputOptions, chain: tuple[str, ...], table: list[DomainCapacity], shape: Shape | None, offered: list[str]
) -> None:
    resources = [name for name in offered if how.output == "wide" or name not in HIDDEN]
    columns = [Column("DOMAIN"), Column("NODES", right=True)]
    columns += [Column(f"FREE {name.upper()}", right=True) for name in (one.rpartition("/")[2] for one in resources)]
    if shape:
        columns += [Column("PODS THAT FIT", right=True), Column("FRAGMENTED", right=True)]
    rows = []
    for one in table:
        row = ["  " * len(one.path) + one.name, str(one.nodes)]
        row += [_free(name, one) for name in resources]
        if shape:
            row += [str(one.pods), "-" if one.fragmentation is None else f"{one.fragmentation:.0%}"]
        rows.append(row)
    if chain:
        console_of(how).print(f"by {' > '.join(chain)}")
    print_table(how, columns, rows)


def _free(resource: str, domain: DomainCapacity) -> str:
    free, total = domain.free[resource], domain.allocatable[resource]
    return f"{_short(resource, free)}/{_short(resource, total)}" if total else "-"


def _short(resource: str, number: int) -> str:
    """Return an amount in at most a tenth of its unit: CPU in cores, bytes in the largest unit that leaves a whole."""
    if resource == "cpu":
        return f"{number / MILLI:.1f}".removesuffix(".0")
    if resource not in BYTES and not resource.startswith("hugepages-"):
        return str(number)
    power = min((number.bit_length() - 1) // 10, len(UNITS) - 1) if number else 0
    return f"{number / 1024**power:.1f}".removesuffix(".0") + UNITS[power]
