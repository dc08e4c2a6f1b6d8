"""``tree``: the groups of a namespace as trees, now or as they change."""

import time
from collections.abc import Callable, Iterator

import click
from rich.live import Live

from cpg_cli.analysis.tree_model import TreeModel
from cpg_cli.analysis.trees import NamespaceView
from cpg_cli.cluster.api_server import ApiServer
from cpg_cli.cluster.namespace_objects import NamespaceObjects, NamespaceReader, apply
from cpg_cli.failures import usage_error
from cpg_cli.options import ClusterOptions, OutputOptions, cluster_options, output_options
from cpg_cli.rendering.console import console_of
from cpg_cli.rendering.documents import print_document
from cpg_cli.rendering.trees import print_trees, tree_table

SECONDS_BETWEEN_VIEWS = 0.25
SECONDS_BETWEEN_AGES = 1.0
EXAMPLES = """\b
Examples:
  kubectl cpg tree                   all trees of the namespace
  kubectl cpg tree -A                of all namespaces
  kubectl cpg tree train --pods      one tree, by any of its groups, with its pods
  kubectl cpg tree jobset/train -w   by its owner, as it changes
"""


@click.command(epilog=EXAMPLES)
@click.argument("target", required=False)
@click.option("-w", "--watch", is_flag=True, help="Show changes as they happen.")
@click.option("--pods", is_flag=True, help="Show the pods too.")
@cluster_options
@output_options
def command(cluster: ClusterOptions, target: str | None, *, watch: bool, pods: bool, how: OutputOptions) -> None:
    """Show trees with their status, health, pods and domains; the mark is at the group that blocks its tree."""
    if target is not None and cluster.all_namespaces:
        raise usage_error("a TARGET is in one namespace", "choose it by --namespace")
    server = ApiServer(cluster)
    namespace = None if cluster.all_namespaces else server.namespace
    reader = NamespaceReader(server, namespace)
    if not reader.has_groups:
        raise usage_error("the API server serves no PodGroups", "install kube-cpg, see docs/quickstart.md")
    objects = reader.read()

    def view() -> NamespaceView:
        return TreeModel(objects).view(target, namespace or "", with_pods=pods)

    if how.output in {"json", "yaml"}:
        if watch:
            raise usage_error("--watch shows text", "leave out --output")
        print_document(how, view())
    elif not watch:
        print_trees(console_of(how), view(), now=time.time(), with_namespaces=cluster.all_namespaces)
    else:
        reader.follow(objects.unread)
        _follow(how, _views(reader, objects, view), with_namespaces=cluster.all_namespaces)


def _views(
    reader: NamespaceReader, objects: NamespaceObjects, view: Callable[[], NamespaceView]
) -> Iterator[NamespaceView]:
    """Yield the view at first, after changes, and from time to time; changes are gathered for a moment."""
    while True:
        yield view()
        until = time.monotonic() + SECONDS_BETWEEN_AGES
        while (left := until - time.monotonic()) > 0:
            for change in reader.changes(left):
                apply(objects, change)
                until = min(until, time.monotonic() + SECONDS_BETWEEN_VIEWS)


def _follow(how: OutputOptions, views: Iterator[NamespaceView], *, with_namespaces: bool) -> None:
    """Show views in place on a terminal; elsewhere print each one that differs from the one before."""
    console = console_of(how)
    if not console.is_terminal:
        before: NamespaceView | None = None
        for view in views:
            if view != before:
                print_trees(console, view, now=time.time(), with_namespaces=with_namespaces)
                console.print()
            before = view
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        for view in views:
            live.update(tree_table(view, now=time.time(), with_namespaces=with_namespaces), refresh=True)
