"""The picture of a moment: trees with what they have, above racks with what is in them. Pure: a sight in, lines out."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle

from story.sights import Group, Sight

PODS_PER_NODE = 2
"""Letters that a node has room for in the picture; more pods make it wider."""

COLOURS = ("36", "35", "33", "32", "34")
"""Of the trees, in the order of their names: cyan, magenta, yellow, green, blue, as terminals number them."""


def drawing(sight: Sight, *, coloured: bool) -> list[str]:
    """Return the lines of the picture."""
    roots = sorted((group for group in sight.groups if not group.parent), key=lambda one: (-one.priority, one.name))
    colours = dict(zip(sorted(root.name for root in roots), cycle(COLOURS), strict=False)) if coloured else {}
    lines = [line for root in roots for line in _tree(sight, root, colours.get(root.name, ""))]
    return [*lines, *([""] if lines else []), *_racks(sight, colours)]


def summary(sight: Sight) -> str:
    """Return the moment in one line, for where nothing can be redrawn."""
    roots = [group for group in sight.groups if not group.parent]
    told = [f"{root.name} {_placed(sight, root.name)}, {root.health or 'new'}" for root in roots]
    return "; ".join(told) or f"{len(sight.nodes)} nodes in racks"


def _placed(sight: Sight, root: str) -> str:
    pods = sight.pods_of(root)
    return f"{sum(bool(pod.node) for pod in pods)}/{len(pods)} pods placed"


def _tree(sight: Sight, root: Group, colour: str) -> Iterator[str]:
    for branch, group in _walk(sight, root, "", ""):
        told = f"{group.scheduled}/{group.pods} pods"
        where = f"in {group.domain}" if group.domain else ""
        name = _painted(f"{branch}{group.name}".ljust(30), colour)
        yield f"  {name} {told:<11} {group.health or 'Pending':<11} {where}".rstrip()


def _walk(sight: Sight, group: Group, branch: str, below: str) -> Iterator[tuple[str, Group]]:
    yield branch, group
    children = sorted((one for one in sight.groups if one.parent == group.name), key=lambda one: one.name)
    for number, child in enumerate(children, 1):
        is_last = number == len(children)
        yield from _walk(sight, child, below + ("└── " if is_last else "├── "), below + ("    " if is_last else "│   "))


def _racks(sight: Sight, colours: dict[str, str]) -> Iterator[str]:
    there = defaultdict(list)
    for pod in sight.pods:
        root = sight.root_of(pod.group)
        there[pod.node].append((root[:1], colours.get(root, "")))
    racks = defaultdict(list)
    for node in sorted(sight.nodes, key=lambda one: one.name):
        racks[node.block, node.rack].append(node.name)
    before = ""
    for (block, rack), nodes in sorted(racks.items()):
        cells = "".join(_cell(there[node]) for node in nodes)
        yield f"  {block if block != before else '':<9} {rack:<10} {cells}"
        before = block


def _cell(pods: list[tuple[str, str]]) -> str:
    letters = "".join(_painted(letter, colour) for letter, colour in sorted(pods))
    return f"[{letters}{' ' * (PODS_PER_NODE - len(pods))}]"


def _painted(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text
