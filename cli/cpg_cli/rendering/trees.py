"""Trees as a table: the hierarchy in the first column, and a mark at the group that blocks its tree."""

from collections.abc import Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from cpg_cli.analysis.trees import MISSING, SCHEDULED, GroupView, NamespaceView, PodView, is_leaf
from cpg_cli.rendering.ages import short_age
from cpg_scheduler.status.messages.wording import counted

COLUMNS = ("NAME", "STATUS", "HEALTH", "MIN", "PODS", "NODES", "DOMAIN", "AGE")
NUMBERS = {"MIN", "PODS", "NODES"}
BLOCKS = "<- blocks"
BRANCH, LAST, BAR, NOTHING = "├─ ", "└─ ", "│  ", "   "
COLORS = {SCHEDULED: "green", MISSING: "red", "Pending": "yellow"}


def tree_table(view: NamespaceView, *, now: float, with_namespaces: bool = False) -> RenderableType:
    """Return trees as a table, and a line about the pods without a group."""
    parts: list[RenderableType] = []
    if view.trees:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for name in ("NAMESPACE", *COLUMNS) if with_namespaces else COLUMNS:
            table.add_column(name, justify="right" if name in NUMBERS else "left", no_wrap=True)
        for tree in view.trees:
            for row in _rows(tree, now):
                table.add_row(*([tree.namespace, *row] if with_namespaces else row))
        parts.append(table)
    if view.single_pods:
        number = view.single_pods
        noun = "pod is" if number == 1 else "pods are"
        parts.append(
            Text(f"{number} {noun} in no group; {view.waiting_single_pods} wait{'s' * (view.waiting_single_pods == 1)}")
        )
    return Group(*parts) if parts else Text("no groups and no pods")


def print_trees(console: Console, view: NamespaceView, *, now: float, with_namespaces: bool = False) -> None:
    """Print trees as text."""
    console.print(tree_table(view, now=now, with_namespaces=with_namespaces))


def _rows(view: GroupView, now: float, before: str = "", inner: str = "") -> Iterator[Sequence[Text | str]]:
    name = Text(f"{before}{_kind(view)}/{view.name}")
    if view.blocking:
        name.append(f" {BLOCKS}", style="bold red")
    if not before and view.owner:
        name.append(f" of {view.owner}", style="dim")
    minimum = "" if not view.minimum else str(view.minimum) if is_leaf(view) else counted(view.minimum, "group")
    yield (
        name,
        Text(view.status, style=COLORS.get(view.status, "red")),
        view.health,
        minimum,
        f"{view.placed}/{view.pods}",
        str(view.nodes),
        view.domain,
        short_age(view.created, now),
    )
    below: list[GroupView | PodView] = [*view.children, *view.members]
    for place, child in enumerate(below):
        is_last = place == len(below) - 1
        branch, under = inner + (LAST if is_last else BRANCH), inner + (NOTHING if is_last else BAR)
        if isinstance(child, GroupView):
            yield from _rows(child, now, branch, under)
        else:
            yield (f"{branch}pod/{child.name}", child.phase, "", "", "", child.node, "", short_age(child.created, now))


def _kind(view: GroupView) -> str:
    return "pg" if is_leaf(view) else "cpg"
