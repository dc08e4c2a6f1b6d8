"""``replay``: decide again from a dump, also with changed groups."""

import click

from cpg_cli.analysis.replays import Replayed, replayed
from cpg_cli.analysis.scenarios import with_settings
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.cluster.sources import read_dump_file
from cpg_cli.cluster.targets import unit_of
from cpg_cli.failures import ExitCode
from cpg_cli.options import OutputOptions, output_options
from cpg_cli.rendering.console import console_of
from cpg_cli.rendering.documents import print_document
from cpg_scheduler.debug.replay import pending_units

EXAMPLES = """\b
Examples:
  kubectl cpg replay cluster.json.gz
  kubectl cpg replay cluster.json.gz train --set workers.minCount=3

\b
Exit codes: 0 all of it would be placed, 1 some of it waits, 2 the file or an option is wrong.
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("target", required=False, default="")
@click.option("-n", "--namespace", metavar="NAME", default="default", show_default=True, help="That of TARGET.")
@click.option("--set", "settings", metavar="NAME.FIELD=VALUE", multiple=True, help="Change groups or templates first.")
@output_options
def command(file: str, target: str, namespace: str, settings: tuple[str, ...], *, how: OutputOptions) -> ExitCode:
    """Decide again from the dump FILE about TARGET, or about all that waits in it, in the order of the queue."""
    scheduler = OfflineScheduler(with_settings(read_dump_file(file), namespace, settings))
    cache = scheduler.cache
    units = [unit_of(cache, namespace, target)] if target else pending_units(cache)
    found = [replayed(scheduler, unit) for unit in units]
    if how.output in {"json", "yaml"}:
        print_document(how, [one.explanation for one in found])
    else:
        _print(found, how)
    return ExitCode.NEGATIVE if any(one.waits for one in found) else ExitCode.FINE


def _print(found: list[Replayed], how: OutputOptions) -> None:
    console = console_of(how)
    for one in found:
        console.print(one.root, style="bold", end=" ")
        console.print(one.text, markup=False)
    if not found:
        console.print("nothing waits")
