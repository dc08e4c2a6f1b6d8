"""Nodes from a compact description, such as `2 blocks x 2 racks x 4 nodes, cpu=4, memory=16Gi`.

The first part counts them, level by level; blocks, or blocks and racks, may be left out. The other parts, after commas,
apply to each node: a resource (`nvidia.com/gpu=8`), `label KEY=VALUE`, `taint KEY=VALUE:EFFECT`, or `name=gpu` for
nodes called gpu-1-1-1. A name contains the position: node-1-2-3 is the third node of the second rack of the first
block.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from itertools import product
from typing import Literal, cast, get_args

from cpg_lab.errors import DescriptionError

TOPOLOGY = "topology.cpg.dev"
MAX_NODES = 100_000
LEVELS = ("block", "rack", "node")
DEFAULT_CAPACITY = {"cpu": "4", "memory": "16Gi", "pods": "110"}

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

_COUNT = re.compile(r"(\d+)\s*([a-z]+?)s?")
_QUANTITY = re.compile(r"\d+(\.\d+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_DNS = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_PREFIX = re.compile(rf"(?=.{{1,40}}$){_DNS}")
_KEY = re.compile(rf"({_DNS}(\.{_DNS})*/)?[A-Za-z0-9]([A-Za-z0-9_.-]{{0,61}}[A-Za-z0-9])?")


@dataclass(frozen=True)
class NodeTaint:
    """A taint of a node."""

    key: str
    value: str
    effect: Effect


@dataclass(frozen=True, kw_only=True)
class NodePool:
    """Nodes that differ only in their position."""

    counts: tuple[int, ...]
    """The number of each level in one of the level above; the last counts nodes."""
    capacity: tuple[tuple[str, str], ...] = tuple(DEFAULT_CAPACITY.items())
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[NodeTaint, ...] = ()
    prefix: str = "node"

    def __post_init__(self) -> None:
        if not 1 <= len(self.counts) <= len(LEVELS):
            raise DescriptionError(f"nodes stand in at most {len(LEVELS)} levels, not {len(self.counts)}")
        if min(self.counts) < 1:
            raise DescriptionError("there must be at least one of each level")
        if len(self) > MAX_NODES:
            raise DescriptionError(f"{len(self)} nodes are more than the {MAX_NODES} that the lab can hold")

    @classmethod
    def parse(cls, text: str) -> "NodePool":
        """Parse a description; an error names the part that is wrong, and shows a valid one."""
        first, *rest = [part.strip() for part in text.split(",")]
        return reduce(_with_part, rest, cls(counts=_parse_counts(first)))

    def __len__(self) -> int:
        return math.prod(self.counts)

    def positions(self) -> Iterator[tuple[int, ...]]:
        """Return the position of each node: its number in each level, from one."""
        return product(*(range(1, count + 1) for count in self.counts))

    def name(self, position: Sequence[int]) -> str:
        """Return the name of the node at a position."""
        return "-".join([self.prefix, *map(str, position)])

    def names(self) -> list[str]:
        """Return the names of all nodes, in order of their positions."""
        return [self.name(position) for position in self.positions()]

    def labels_at(self, position: Sequence[int]) -> dict[str, str]:
        """Return the labels of the node at a position: its name, then each level."""
        levels = LEVELS[-len(position) : -1] if len(position) > 1 else ()
        topology = {
            f"{TOPOLOGY}/{level}": "-".join([level, *map(str, position[: depth + 1])])
            for depth, level in enumerate(levels)
        }
        return {"kubernetes.io/hostname": self.name(position), **topology, **dict(self.labels)}


def check_names(pools: Sequence[NodePool]) -> None:
    """Raise if the pools give two nodes the same name."""
    seen: set[str] = set()
    for pool in pools:
        names = pool.names()
        if both := seen.intersection(names):
            raise DescriptionError(f"two nodes would be called {min(both)}: give one description name=SOMETHING")
        seen.update(names)


def manifest(pool: NodePool, position: Sequence[int], *, now: str) -> dict[str, object]:
    """Return the Node object. Unlike a Pod, a Node may be created with its status, so it is ready at once."""
    name = pool.name(position)
    capacity = dict(pool.capacity)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": pool.labels_at(position),
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"taints": [asdict(taint) for taint in pool.taints]},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "LabNode",
                    "message": "ready as long as the lab runs",
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
            ],
            "addresses": [{"type": "Hostname", "address": name}],
        },
    }


def _parse_counts(text: str) -> tuple[int, ...]:
    found = []
    for part in re.split(r"\s+x\s+", text):
        match = _COUNT.fullmatch(part)
        if match is None or match[2] not in LEVELS:
            raise DescriptionError(f'"{part}" is not a count like "2 blocks", "4 racks" or "8 nodes"')
        found.append((match[2], int(match[1])))
    if [level for level, _ in found] != list(LEVELS[-len(found) :]):
        raise DescriptionError(f'"{text}" is not in the order blocks x racks x nodes, ending with nodes')
    return tuple(count for _, count in found)


def _with_part(pool: NodePool, part: str) -> NodePool:
    kind, _, rest = part.partition(" ")
    if kind == "label":
        return replace(pool, labels=(*pool.labels, _parse_label(rest.strip())))
    if kind == "taint":
        return replace(pool, taints=(*pool.taints, _parse_taint(rest.strip())))
    key, equals, value = (text.strip() for text in part.partition("="))
    if not equals:
        raise DescriptionError(f'"{part}" is not KEY=VALUE, "label KEY=VALUE" or "taint KEY=VALUE:EFFECT"')
    if key == "name":
        return replace(pool, prefix=_match(_PREFIX, value, "the beginning of a node's name"))
    _match(_KEY, key, "the name of a resource")
    _match(_QUANTITY, value, "a quantity such as 4, 500m or 16Gi")
    return replace(pool, capacity=tuple({**dict(pool.capacity), key: value}.items()))


def _parse_label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise DescriptionError(f'the label "{text}" is not KEY=VALUE')
    return _match(_KEY, key, "the key of a label"), _match(_LABEL_VALUE, value, "the value of a label")


def _parse_taint(text: str) -> NodeTaint:
    pair, colon, effect = text.rpartition(":")
    if not colon or effect not in get_args(Effect):
        effects = ", ".join(get_args(Effect))
        raise DescriptionError(f'the taint "{text}" is not KEY=VALUE:EFFECT or KEY:EFFECT, with one of {effects}')
    key, _, value = pair.partition("=")
    _match(_KEY, key, "the key of a taint")
    return NodeTaint(key, _match(_LABEL_VALUE, value, "the value of a taint"), cast("Effect", effect))


def _match(pattern: re.Pattern[str], text: str, what: str) -> str:
    if not pattern.fullmatch(text):
        raise DescriptionError(f'"{text}" cannot be {what}')
    return text
