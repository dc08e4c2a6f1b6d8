"""``convert``: manifests of other schedulers as ours."""

import re
import sys

import click

from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_cli.conversion.converter import FORMATS, convert_all
from cpg_cli.conversion.documents import format_document, read_documents
from cpg_cli.conversion.formats import ConversionOptions
from cpg_cli.failures import usage_error
from cpg_cli.options import OutputOptions
from cpg_cli.rendering.documents import print_document
from cpg_cli.rendering.tables import warn

EXAMPLES = """\b
Examples:
  kubectl cpg convert -f jobs/ > ours.yaml             every format that is found in the folder
  kubectl cpg convert -f job.yaml --from volcano --tier 1=topology.cpg.dev/rack
  kubectl get podgroups.scheduling.x-k8s.io -o yaml | kubectl cpg convert -f - | kubectl apply -f -
"""
TIER = re.compile(r"([^=]+)=([^=]+)")


@click.command(epilog=EXAMPLES)
@click.option(
    "-f",
    "--filename",
    "places",
    type=click.Path(allow_dash=True),
    metavar="FILE|DIR|-",
    multiple=True,
    required=True,
    help="The manifests.",
)
@click.option("--from", "name", type=click.Choice(list(FORMATS)), help="Convert this format alone; all by default.")
@click.option("--tier", "tiers", metavar="TIER=LABEL", multiple=True, help="The node label of a tier of Volcano.")
@click.option(
    "--scheduler-name", default=SCHEDULER_NAME, show_default=True, help="The schedulerName of converted pods."
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", help="The format of the output.")
def command(
    places: tuple[str, ...], name: str | None, tiers: tuple[str, ...], scheduler_name: str, output: str
) -> None:
    """Write manifests of Volcano, coscheduling or native groups as ours.

    The API version says which format a document has. Other documents, and all fields that need no change, stay as they
    are. What has no equivalent is named on standard error; nothing is sent to a cluster.
    """
    matches = [TIER.fullmatch(tier) for tier in tiers]
    if not all(matches):
        raise usage_error(f"--tier {' '.join(tiers)} is not TIER=LABEL", "such as --tier 1=topology.cpg.dev/rack")
    options = ConversionOptions(
        scheduler_name=scheduler_name, tiers={match[1]: match[2] for match in matches if match is not None}
    )
    formats = [FORMATS[name]] if name else list(FORMATS.values())
    documents = [one for place in places for one in read_documents(place, sys.stdin)]
    found, notes = convert_all(documents, formats, options)
    if output == "json":
        items = [one.plain for one in found]
        print_document(OutputOptions(output="json"), {"apiVersion": "v1", "kind": "List", "items": items})
    else:
        click.echo("---\n".join(format_document(one) for one in found), nl=False)
    warn(OutputOptions(), notes)
