"""``explain``: why a tree or pod waits, and what would help."""

import time
from typing import TypedDict, Unpack

import click
from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.decoding import decode
from cpg_cli.analysis.answers import AnswerSource, ExplainAnswer
from cpg_cli.analysis.asked import explain_asked
from cpg_cli.analysis.counterfactuals import MAX_SECONDS
from cpg_cli.analysis.explanation import explain, settled
from cpg_cli.analysis.recorded import explain_recorded, recorded_attempt
from cpg_cli.cluster.api_server import ApiServer, ApiServerError
from cpg_cli.cluster.kinds import RESOURCES
from cpg_cli.cluster.leader import LeaderPages
from cpg_cli.cluster.listing import FORBIDDEN, Report, list_objects, unreadable
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.cluster.targets import unit_of
from cpg_cli.failures import CommandError, usage_error
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options, output_options
from cpg_cli.rendering.console import console_of, progress_of
from cpg_cli.rendering.documents import print_document
from cpg_cli.rendering.explanation import print_explanation
from cpg_client.resources import PODS
from cpg_scheduler.keys import UnitKey


class ExplainOptions(TypedDict):
    """The options of this command alone."""

    source: str
    check_seconds: float


EXPLAIN = "/debug/explain/"
EXAMPLES = """\b
Examples:
  kubectl cpg explain train                      a tree, by any of its groups
  kubectl cpg explain jobset/train               by its owner
  kubectl cpg explain pod/train-workers-0-0      a pod, or the tree that it is part of
  kubectl cpg explain train --source status      with no right but to view the namespace
  kubectl cpg explain train -o json              for programs
"""


@click.command(epilog=EXAMPLES)
@click.argument("target")
@click.option(
    "--source",
    type=click.Choice(["auto", "view", "scheduler", "status"]),
    default="auto",
    show_default=True,
    help="Decide again on what you may list (view), ask the scheduler, or show what the status says; by default the "
    "first of them that your rights allow.",
)
@click.option(
    "--check-seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0.0),
    default=MAX_SECONDS,
    show_default=True,
    help="How long to check what would help (FITS IF).",
)
@cluster_options
@output_options
def command(cluster: ClusterOptions, target: str, *, how: OutputOptions, **chosen: Unpack[ExplainOptions]) -> None:
    """Say why TARGET waits, and what would help: TARGET is a group, a pod, or the owner of a tree."""
    if cluster.all_namespaces:
        raise usage_error("explain takes one tree, in one namespace", "choose it by --namespace")
    with progress_of(how) as report:
        answer = _Explanations(ApiServer(cluster), target, report, chosen).by(chosen["source"])
    if how.output in {"json", "yaml"}:
        print_document(how, answer)
    else:
        print_explanation(console_of(how), answer, now=time.time())


class _Explanations:
    """The answers of the sources."""

    def __init__(self, server: ApiServer, target: str, report: Report, options: ExplainOptions) -> None:
        self._server = server
        self._target = target
        self._report = report
        self._options = options

    def by(self, source: str) -> ExplainAnswer:
        """Return the answer of a source."""
        sources = {"auto": self._automatic, "view": self._view, "scheduler": self._leader, "status": self._status}
        return sources[source]()

    def _automatic(self) -> ExplainAnswer:
        """Return the answer of the best source that the user's rights allow."""
        denied = unreadable(self._server, (RESOURCES[Node], RESOURCES[Pod]))
        if not denied:
            return self._view()
        missing = [f"you may not list all {plural}" for plural in denied]
        try:
            return _with_missing(self._leader(), missing)
        except CommandError as error:
            missing.append(f"the scheduler could not be asked: {error}")
        return _with_missing(self._status(), missing)

    def _view(self) -> ExplainAnswer:
        found = list_objects(self._server, report=self._report)
        scheduler = OfflineScheduler(found.to_dump())
        unit = unit_of(scheduler.cache, self._server.namespace, self._target)
        missing = tuple(f"you may not list {plural}" for plural in found.unread) + tuple(found.refused)
        source = AnswerSource("view", "your view of the cluster, now", missing)
        recorded, seconds = recorded_attempt(scheduler.cache, unit), self._options["check_seconds"]
        return explain(scheduler, unit, source, recorded=recorded, seconds=seconds)

    def _status(self) -> ExplainAnswer:
        scheduler, unit = self._in_namespace()
        return explain_recorded(scheduler, unit, AnswerSource("status", "status, as the scheduler has written it"))

    def _leader(self) -> ExplainAnswer:
        scheduler, unit = self._in_namespace()
        if settled(scheduler, unit) is not None:
            return explain_recorded(scheduler, unit, AnswerSource("status", "status"))
        leader = LeaderPages(self._server)
        found = decode(leader.get(f"{EXPLAIN}{unit.flavour or 'pod'}/{unit.key.namespace}/{unit.key.name}"))
        source = AnswerSource("scheduler", "scheduler, live", ("what would help was not checked",))
        queue = decode(leader.get(EXPLAIN))["roots"]
        return explain_asked(unit, found, queue, source, recorded=recorded_attempt(scheduler.cache, unit))

    def _in_namespace(self) -> tuple[OfflineScheduler, UnitKey]:
        """Return the groups and pods of the namespace, and the unit that the target is."""
        namespace = self._server.namespace
        found = list_objects(self._server, namespace=namespace, kinds=(Pod,), report=self._report)
        if PODS.plural in found.unread:
            raise ApiServerError(found.unread[PODS.plural], status=FORBIDDEN)
        scheduler = OfflineScheduler(found.to_dump())
        return scheduler, unit_of(scheduler.cache, namespace, self._target)


def _with_missing(answer: ExplainAnswer, missing: list[str]) -> ExplainAnswer:
    source = replace(answer.source, missing=(*missing, *answer.source.missing))
    return replace(answer, source=source)
