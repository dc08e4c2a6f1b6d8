"""``replay``: decide again from a dump, also with changed groups."""

import time
from datetime import UTC, datetime

import click

from cpg_cli.analysis.answers import AnswerSource
from cpg_cli.analysis.counterfactuals import MAX_SECONDS
from cpg_cli.analysis.explanation import explain
from cpg_cli.analysis.scenarios import with_settings
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.cluster.sources import read_dump_file
from cpg_cli.cluster.targets import unit_of
from cpg_cli.failures import ExitCode
from cpg_cli.options import OutputOptions, output_options
from cpg_cli.rendering.console import console_of, progress_of
from cpg_cli.rendering.documents import print_document
from cpg_cli.rendering.explanation import print_explanation
from cpg_scheduler.debug.replay import pending_units

EXAMPLES = """\b
Examples:
  kubectl cpg replay cluster.json.gz
  kubectl cpg replay cluster.json.gz train --set workers.minCount=3

\b
Exit codes: 0 every minimum would be placed, 1 one would not, 2 the file or an option is wrong.
"""


@click.command(epilog=EXAMPLES)
@click.argument("file", type=click.Path(dir_okay=False))
@click.argument("target", required=False, default="")
@click.option("-n", "--namespace", metavar="NAME", default="default", show_default=True, help="That of TARGET.")
@click.option("--set", "settings", metavar="NAME.FIELD=VALUE", multiple=True, help="Change groups or templates first.")
@output_options
def command(file: str, target: str, namespace: str, settings: tuple[str, ...], *, how: OutputOptions) -> ExitCode:
    """Decide again from the dump FILE about TARGET, or about all that waits in it, in the order of the queue.

    What would help is checked for a TARGET alone.
    """
    dump = read_dump_file(file)
    scheduler = OfflineScheduler(with_settings(dump, namespace, settings))
    cache = scheduler.cache
    units = [unit_of(cache, namespace, target)] if target else pending_units(cache)
    taken = f", taken {datetime.fromtimestamp(dump.taken, UTC):%Y-%m-%d %H:%M:%SZ}" if dump.taken else ""
    source, answers = AnswerSource("dump", f"the dump {file}{taken}"), []
    with progress_of(how) as report:
        for number, unit in enumerate(units, start=1):
            answers.append(explain(scheduler, unit, source, seconds=MAX_SECONDS if target else 0.0))
            report("trees", number, len(units))
    if how.output in {"json", "yaml"}:
        print_document(how, answers)
    else:
        console = console_of(how)
        for answer in answers:
            print_explanation(console, answer, now=dump.taken or time.time())
        if not answers:
            console.print("nothing waits")
    # Without a reason the minimum is placed, and further pods wait.
    is_below = any(answer.state == "Waiting" and answer.reason for answer in answers)
    return ExitCode.NEGATIVE if is_below else ExitCode.FINE
