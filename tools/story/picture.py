"""The picture of a state: trees with their status, above racks with their pods. A pure function of the state."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import cycle

from story.state import ClusterState, Group

PODS_PER_NODE = 2
"""Letters that fit into a node of the picture; more pods make it wider."""

COLOURS = ("36", "35", "33", "32", "34")
"""Terminal colours of the trees, in the order of their names: cyan, magenta, yellow, green, blue."""


def draw(state: ClusterState, *, coloured: bool) -> list[str]:
    """Return the lines of the picture."""
    roots = sorted((group for group in state.groups if not group.parent), key=lambda one: (-one.priority, one.name))
    colours = dict(zip(sorted(root.name for root in roots), cycle(COLOURS), strict=False)) if coloured else {}
    lines = [line for root in roots for line in _tree(state, root, colours.get(root.name, ""))]
    return [*lines, *([""] if lines else []), *_racks(state, colours)]


def summarize(state: ClusterState) -> str:
    """Return the state in one line, for a stream that cannot be redrawn."""
    roots = [group for group in state.groups if not group.parent]
    trees = [f"{root.name} {_placed(state, root.name)}, {root.health or 'new'}" for root in roots]
    return "; ".join(trees) or f"{len(state.nodes)} nodes in racks"


def _placed(state: ClusterState, root: str) -> str:
    pods = state.pods_of(root)
    return f"{sum(bool(pod.node) for pod in pods)}/{len(pods)} pods placed"


def _tree(state: ClusterState, root: Group, colour: str) -> Iterator[str]:
    for branch, group in _walk(state, root, "", ""):
        counts = f"{group.scheduled}/{group.pods} pods"
        where = f"in {group.domain}" if group.domain else ""
        name = _painted(f"{branch}{group.name}".ljust(30), colour)
        yield f"  {name} {counts:<11} {group.health or 'Pending':<11} {where}".rstrip()


def _walk(state: ClusterState, group: Group, branch: str, below: str) -> Iterator[tuple[str, Group]]:
    yield branch, group
    children = sorted((one for one in state.groups if one.parent == group.name), key=lambda one: one.name)
    for number, child in enumerate(children, 1):
        is_last = number == len(children)
        yield from _walk(state, child, below + ("└── " if is_last else "├── "), below + ("    " if is_last else "│   "))


def _racks(state: ClusterState, colours: dict[str, str]) -> Iterator[str]:
    pods_of = defaultdict(list)
    for pod in state.pods:
        root = state.root_of(pod.group)
        pods_of[pod.node].append((root[:1], colours.get(root, "")))
    racks = defaultdict(list)
    for node in sorted(state.nodes, key=lambda one: one.name):
        racks[node.block, node.rack].append(node.name)
    before = ""
    for (block, rack), nodes in sorted(racks.items()):
        cells = "".join(_cell(pods_of[node]) for node in nodes)
        yield f"  {block if block != before else '':<9} {rack:<10} {cells}"
        before = block


def _cell(pods: list[tuple[str, str]]) -> str:
    letters = "".join(_painted(letter, colour) for letter, colour in sorted(pods))
    return f"[{letters}{' ' * (PODS_PER_NODE - len(pods))}]"


def _painted(text: str, colour: str) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if colour else text
