"""``what-if``: what would become of a tree if the cluster, or the tree, were different."""

import time
from typing import TypedDict, Unpack

import click

from cpg_api.scheduling.forest import key_of
from cpg_cli.analysis.differences import Difference, difference_of
from cpg_cli.analysis.outcome import outcome_of
from cpg_cli.analysis.scenarios import (
    cordoned,
    with_added_nodes,
    with_priority,
    with_settings,
    without_nodes,
    without_taints,
)
from cpg_cli.analysis.simulated_scheduler import SimulatedScheduler
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.sources import LIVE, read_cluster
from cpg_cli.cluster.targets import unit_of
from cpg_cli.failures import ExitCode, usage_error
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options, output_options
from cpg_cli.rendering.console import console_of, progress_of
from cpg_cli.rendering.documents import print_document
from cpg_cli.rendering.outcomes import print_difference
from cpg_scheduler.cache.cluster import SINGLE_POD
from cpg_scheduler.debug.dump import Dump
from cpg_scheduler.debug.replay import pending_units
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.units import groups_of


class WhatIfOptions(TypedDict):
    """The options of this command alone."""

    source: str
    without: tuple[str, ...]
    cordon: tuple[str, ...]
    without_taint: tuple[str, ...]
    add_nodes: tuple[str, ...]
    priority: int | None
    settings: tuple[str, ...]


EXAMPLES = """\b
Examples:
  kubectl cpg what-if train --without node/n3              would it find another place?
  kubectl cpg what-if train --add-nodes "2 x gpu=8,rack=r1"
  kubectl cpg what-if train --priority 2000                which pods would be evicted for it?
  kubectl cpg what-if train --set workers.minCount=3
  kubectl cpg what-if --cordon n3 --cluster dump.json.gz   everything that waits

\b
Exit codes: 0 fits after it, 1 would not fit, 2 wrong options, 3 no rights, 4 the server failed.
"""


@click.command(epilog=EXAMPLES)
@click.argument("target", required=False, default="")
@click.option("--without", metavar="node/NAME", multiple=True, help="Without this node; its pods are made anew.")
@click.option("--cordon", metavar="NODE", multiple=True, help="With this node cordoned.")
@click.option("--without-taint", metavar="KEY", multiple=True, help="Without the taints of this key.")
@click.option(
    "--add-nodes", metavar='"N x KEY=VALUE,..."', multiple=True, help="With further nodes, by resources and labels."
)
@click.option("--priority", metavar="NUMBER", type=int, help="With this priority for TARGET.")
@click.option("--set", "settings", metavar="NAME.FIELD=VALUE", multiple=True, help="With changed groups or templates.")
@click.option(
    "--cluster", "source", metavar="live|DUMP|FILE", default=LIVE, show_default=True, help="The cluster to change."
)
@cluster_options
@output_options
def command(cluster: ClusterOptions, target: str, *, how: OutputOptions, **chosen: Unpack[WhatIfOptions]) -> ExitCode:
    """Say what would become of TARGET, or of everything that waits, if the cluster were different: before and after.

    TARGET is a group, a pod, or the owner of a tree. Nothing is changed.
    """
    server = ApiServer(cluster)
    with progress_of(how) as report:
        base, missing = read_cluster(chosen["source"], server, now=time.time(), report=report)
    namespace = cluster.namespace or (server.namespace if chosen["source"] == LIVE else "default")
    before = SimulatedScheduler(base)
    unit = unit_of(before.cache, namespace, target) if target else None
    changed = _changed(base, before, unit, namespace, chosen)
    waiting = pending_units(before.cache)
    before.settle()
    after = SimulatedScheduler(changed)
    units = [unit] if unit is not None else list(dict.fromkeys([*waiting, *pending_units(after.cache)]))
    after.settle()
    found = difference_of(outcome_of(before, units), outcome_of(after, units, notes=missing))
    _show(found, how)
    return ExitCode.FINE if found.after.fits else ExitCode.NEGATIVE


def _show(found: Difference, how: OutputOptions) -> None:
    if how.output in {"json", "yaml"}:
        print_document(how, found)
    else:
        print_difference(console_of(how), found)


def _changed(
    base: Dump, before: SimulatedScheduler, unit: UnitKey | None, namespace: str, chosen: WhatIfOptions
) -> Dump:
    """Return the cluster with the changes that the options ask for."""
    if not any(value not in {(), None} for option, value in chosen.items() if option != "source"):
        hint = "such as --without node/n3, --add-nodes '2 x gpu=8', --priority 2000"
        raise usage_error("what-if needs a change", hint)
    names = [name.removeprefix("node/") for name in chosen["without"]]
    found = with_settings(base, namespace, chosen["settings"])
    if chosen["priority"] is not None:
        if unit is None:
            raise usage_error("--priority needs a TARGET")
        found = _prioritized(found, before, unit, chosen["priority"])
    found = without_taints(cordoned(without_nodes(found, names), chosen["cordon"]), chosen["without_taint"])
    return with_added_nodes(found, chosen["add_nodes"])


def _prioritized(found: Dump, before: SimulatedScheduler, unit: UnitKey, priority: int) -> Dump:
    cache = before.cache
    if unit.flavour == SINGLE_POD:
        pod = cache.single_pod(unit.key)
        return with_priority(found, "", (), [pod.metadata.uid] if pod is not None else [], priority)
    groups = [key_of(group) for group in groups_of(cache, unit)]
    pods = [pod.metadata.uid for group in groups for pod in cache.members(unit.flavour, group)]
    return with_priority(found, unit.flavour, groups, pods, priority)
