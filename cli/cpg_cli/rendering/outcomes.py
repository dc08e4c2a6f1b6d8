"""The outcome of a simulation as text."""

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cpg_api.scheduling.podgroup import PodGroup
from cpg_cli.analysis.differences import Difference, group_differences
from cpg_cli.analysis.outcome import GroupOutcome, Outcome, TreeOutcome
from cpg_scheduler.status.messages.wording import counted

WIDTH = 100
LABEL_WIDTH = 12
MAX_NODES_NAMED = 6
MAX_PODS_NAMED = 3
MAX_VICTIMS = 10
MAX_SINGLE_PODS = 20


def print_outcome(console: Console, found: Outcome, *, all_nodes: bool = False) -> None:
    """Print trees with their domains and nodes, victims, and why what waits waits."""
    console.print(Text(_headline(found), style="bold"))
    for tree in found.trees:
        console.print()
        console.print(_tree_table(tree, all_nodes=all_nodes), width=WIDTH, soft_wrap=False)
        for label, text in _reasons(tree):
            _print_fact(console, label, text)
    if found.single_pods:
        console.print()
        console.print(_pod_table(found), width=WIDTH, soft_wrap=False)
    facts = [*_devices(found), *_victims(found), *(("NOTE", note) for note in found.notes)]
    if found.ignored:
        facts.append(("IGNORED", f"{', '.join(found.ignored)}: of a kind that creates no pods here"))
    if facts:
        console.print()
    for label, text in facts:
        _print_fact(console, label, text)


def print_difference(console: Console, found: Difference) -> None:
    """Print each group before and after, and what would be evicted."""
    console.print(Text(f"before  {_headline(found.before)}"))
    console.print(Text(f"after   {_headline(found.after)}", style="bold"))
    console.print()
    console.print(_difference_table(found), width=WIDTH, soft_wrap=False)
    for tree in found.after.trees:
        for label, text in _reasons(tree):
            _print_fact(console, label, text)
    for label, text in (*_victims(found.after), *(("NOTE", note) for note in found.after.notes)):
        _print_fact(console, label, text)


def _difference_table(found: Difference) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("GROUP" if found.after.trees else "POD", no_wrap=True)
    table.add_column("BEFORE", overflow="fold")
    table.add_column("AFTER", overflow="fold")
    for one in group_differences(found.before, found.after):
        group = one.after or one.before
        if group is not None:
            style = "bold" if one.is_change else "dim"
            table.add_row(f"{'  ' * group.depth}{group.name}", _place(one.before), _place(one.after), style=style)
    before = {pod.name: pod.node for pod in found.before.single_pods}
    for pod in found.after.single_pods:
        old, style = before.get(pod.name, ""), "dim" if before.get(pod.name) == pod.node else "bold"
        table.add_row(pod.name, old or "none", pod.node or f"none: {pod.message}", style=style)
    return table


def _place(group: GroupOutcome | None) -> str:
    """Return how much of a group is placed, and where."""
    if group is None:
        return "none"
    where = [group.domain.value] if group.domain is not None else []
    where += [nodes_text(group.nodes)] if group.nodes else []
    return f"{_members(group)}{': ' if where else ''}{', '.join(where)}"


def _headline(found: Outcome) -> str:
    waiting = [tree for tree in found.trees if tree.pods and not tree.is_placed]
    alone = sum(not pod.node for pod in found.single_pods)
    pods = f"{found.placed_pods} of {counted(found.pods, 'pod')} placed"
    if not found.pods and found.fits:
        return "nothing waits"
    if found.fits:
        late = found.pods - found.placed_pods
        return f"fits: {pods}" + (f"; {counted(late, 'pod')} beyond the minimum would wait" if late else "")
    missing = [counted(len(waiting), "tree")] if waiting else []
    missing += [counted(alone, "pod")] if alone else []
    return f"does not fit: {' and '.join(missing)} would wait; {pods}"


def _tree_table(tree: TreeOutcome, *, all_nodes: bool) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("GROUP", no_wrap=True)
    table.add_column("STATUS", no_wrap=True)
    table.add_column("PLACED", no_wrap=True)
    table.add_column("DOMAIN", no_wrap=True)
    table.add_column("NODES", overflow="fold")
    for group in tree.groups:
        status = Text("placed", style="green") if group.is_placed else Text("waits", style="yellow")
        status = status if tree.pods else Text("empty", style="dim")
        domain = group.domain.value if group.domain is not None else ""
        nodes = nodes_text(group.nodes, len(group.nodes) if all_nodes else MAX_NODES_NAMED)
        table.add_row(f"{'  ' * group.depth}{group.name}", status, _members(group), domain, nodes)
    if not tree.groups:
        table.add_row(tree.root, Text("missing", style="yellow"), f"0 of {counted(tree.pods, 'pod')}", "", "")
    return table


def _pod_table(found: Outcome) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("POD", no_wrap=True)
    table.add_column("NODE", no_wrap=True)
    table.add_column("WHY", overflow="fold")
    waiting_first = sorted(found.single_pods, key=lambda pod: bool(pod.node))
    for pod in waiting_first[:MAX_SINGLE_PODS]:
        table.add_row(pod.name, pod.node or Text("none", style="yellow"), pod.message)
    if len(waiting_first) > MAX_SINGLE_PODS:
        table.add_row(f"and {len(waiting_first) - MAX_SINGLE_PODS} more", "", "")
    return table


def nodes_text(nodes: Mapping[str, int], limit: int = MAX_NODES_NAMED) -> str:
    """Return nodes with the number of pods on each, the first ones by name."""
    named = [name if count == 1 else f"{name} x{count}" for name, count in list(nodes.items())[:limit]]
    more = len(nodes) - limit
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _members(group: GroupOutcome) -> str:
    noun = "pod" if group.kind == PodGroup.kind else "group"
    text = f"{group.placed} of {counted(group.total, noun)}"
    return text if group.minimum == group.total else f"{text}, min {group.minimum}"


def _reasons(tree: TreeOutcome) -> Iterator[tuple[str, str]]:
    """Yield why groups wait; the message of a group says what is wrong below it."""
    reported = -1
    for group in tree.groups:
        if reported >= 0 and group.depth > reported:
            continue
        reported = group.depth if group.message else -1
        if group.message:
            yield "WHY", f"{group.name}: {group.message}"
    if not tree.pods:
        yield "NOTE", f"{tree.root} has no pods in the files"


def _devices(found: Outcome) -> Iterator[tuple[str, str]]:
    """Yield how many devices of each driver the claims have."""
    drivers = Counter(device.partition("/")[0] for claim in found.claims for device in claim.devices)
    if drivers:
        listed = " and ".join(f"{counted(number, 'device')} of {driver}" for driver, number in sorted(drivers.items()))
        yield "CLAIMS", f"{counted(len(found.claims), 'claim')} with {listed}"


def _victims(found: Outcome) -> Iterator[tuple[str, str]]:
    for victim in found.victims[:MAX_VICTIMS]:
        names = ", ".join(victim.pods[:MAX_PODS_NAMED])
        more = len(victim.pods) - MAX_PODS_NAMED
        names += f" and {more} more" if more > 0 else ""
        yield "EVICTS", f"{names} (priority {victim.priority}) for {victim.preemptor}: {victim.reason}"
    if len(found.victims) > MAX_VICTIMS:
        yield "EVICTS", f"and {len(found.victims) - MAX_VICTIMS} more"


def _print_fact(console: Console, label: str, text: str) -> None:
    """Print a labelled text, wrapped beside its label."""
    table = Table.grid(padding=0)
    table.add_column(width=LABEL_WIDTH, style="bold cyan")
    table.add_column(overflow="fold")
    table.add_row(label, text)
    console.print(Padding(table, 0, expand=False), width=WIDTH, soft_wrap=False)
