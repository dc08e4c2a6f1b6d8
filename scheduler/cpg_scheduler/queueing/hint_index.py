"""The hopes of those who wait, kept so that news reach whom they may help without asking all the others.

Ten thousand pods that are all different hope for ten thousand different things, and with every pod that ends somewhere
a node has more room. So hopes are sorted three times over:

1. by a label without which a node can help none of them, such as the one that a node selector names: a node is only
   held against the hopes for the labels that it has;
2. by what else matters of the node itself: pods that ask the same of a node, room aside, are one *kind*, and the
   predicates look at the nodes once for all of them;
3. by room, as a table of numbers: one comparison per resource tells who of a kind could use a node.

As in ``failing``, a shortcut may let an attempt be made in vain and must never keep one from being made.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from cpg_api.selectors import NAME_FIELD
from cpg_engine.cluster.axes import Amounts, Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.filters import node_resources
from cpg_engine.filters.registry import statically_feasible
from cpg_engine.snapshot import Snapshot
from cpg_scheduler.queueing.hints import RequeueHint

Pair: TypeAlias = tuple[str, str]
"""A label and its value, or the name of a node, as if it were one."""

ANYWHERE: Pair = ("", "")
"""What every node has."""

NEVER = np.iinfo(np.int64).max
"""More than any node has room for: the need of nobody."""


class _Kind:
    """Hopes for room on the same nodes: what each needs, one column per resource."""

    def __init__(self, pod_class: PodClass, pairs: frozenset[Pair]) -> None:
        self.pod_class = pod_class
        self.pairs = pairs
        self.needs: dict[str, NDArray[np.int64]] = {}
        self.keys: list[Hashable] = []
        self.vacant: list[int] = []

    @property
    def is_empty(self) -> bool:
        return len(self.vacant) == len(self.keys)

    def put(self, key: Hashable, requests: dict[str, int]) -> int:
        """Add a hope; return its place."""
        if not self.vacant:
            self._grow()
        for name in requests.keys() - self.needs.keys():
            self.needs[name] = np.zeros(len(self.keys), dtype=np.int64)
            self.needs[name][self.vacant] = NEVER
        place = self.vacant.pop()
        self.keys[place] = key
        for name, column in self.needs.items():
            column[place] = requests.get(name, 0)
        return place

    def drop(self, place: int) -> None:
        """Take out a hope; every pod needs something, so nothing is room enough for an empty place."""
        self.vacant.append(place)
        for column in self.needs.values():
            column[place] = NEVER

    def helped(self, free: Amounts, columns: dict[str, int]) -> Iterator[Hashable]:
        """Yield who has room on one of the nodes, by what each of them has free."""
        # A resource that nobody asks for may be overdrawn.
        free = np.maximum(free, 0)
        rest = self._able(np.arange(len(self.keys)), free.max(axis=0, initial=0), columns)
        for row in free:
            if not len(rest):
                return
            able = self._able(rest, row, columns)
            yield from (self.keys[place] for place in able.tolist())
            rest = np.setdiff1d(rest, able, assume_unique=True)

    def _able(self, places: NDArray[np.intp], free: NDArray[np.int64], columns: dict[str, int]) -> NDArray[np.intp]:
        for name, needs in self.needs.items():
            number = free[columns[name]] if name in columns else 0
            places = places[needs[places] <= number]
        return places

    def _grow(self) -> None:
        more = max(len(self.keys), 16)
        self.vacant = [*range(len(self.keys) + more - 1, len(self.keys) - 1, -1)]
        self.keys += [None] * more
        self.needs = {name: np.pad(column, (0, more), constant_values=NEVER) for name, column in self.needs.items()}


class HintIndex:
    """Who hopes for what, by any key."""

    def __init__(self) -> None:
        """Start with nobody."""
        self._hopes: dict[Hashable, RequeueHint] = {}
        self._anything: dict[Hashable, None] = {}
        self._homes: dict[str, dict[Hashable, None]] = {}
        self._kinds: dict[Hashable, _Kind] = {}
        self._by_pair: dict[Pair, dict[Hashable, _Kind]] = {}
        self._places: dict[Hashable, list[tuple[Hashable, int]]] = {}

    def __len__(self) -> int:
        return len(self._hopes)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self._hopes)

    def __getitem__(self, key: Hashable) -> RequeueHint:
        return self._hopes[key]

    @property
    def for_anything(self) -> list[Hashable]:
        """Return those whom any news may help."""
        return list(self._anything)

    def put(self, key: Hashable, hope: RequeueHint) -> None:
        """Let somebody hope for this, and for nothing else."""
        self.drop(key)
        self._hopes[key] = hope
        if hope.anything:
            self._anything[key] = None
        for home in hope.homes:
            self._homes.setdefault(home, {})[key] = None
        self._places[key] = [self._place(key, pod_class) for pod_class in hope.classes]

    def drop(self, key: Hashable) -> None:
        """Forget what somebody hopes for, if anything."""
        hope = self._hopes.pop(key, None)
        if hope is None:
            return
        self._anything.pop(key, None)
        for home in hope.homes:
            del self._homes[home][key]
            if not self._homes[home]:
                del self._homes[home]
        for name, place in self._places.pop(key):
            kind = self._kinds[name]
            kind.drop(place)
            if kind.is_empty:
                del self._kinds[name]
                for pair in kind.pairs:
                    del self._by_pair[pair][name]
                    if not self._by_pair[pair]:
                        del self._by_pair[pair]

    def helped(self, snapshot: Snapshot, nodes: Iterable[str]) -> list[Hashable]:
        """Return whom it may help that these nodes have become better, as they are now, or are gone."""
        found = dict(self._anything)
        names = list(nodes)
        for name in names:
            found.update(self._homes.get(name, {}))
        rows = _rows(snapshot, names)
        for kind in self._kinds_for(snapshot, rows).values():
            found.update(dict.fromkeys(_helped(kind, snapshot, rows)))
        return list(found)

    def _place(self, key: Hashable, pod_class: PodClass) -> tuple[Hashable, int]:
        name = _name(pod_class)
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = _Kind(pod_class, self._pairs(pod_class))
            for pair in kind.pairs:
                self._by_pair.setdefault(pair, {})[name] = kind
        return name, kind.put(key, pod_class.requests)

    def _pairs(self, pod_class: PodClass) -> frozenset[Pair]:
        """Return pairs one of which a node must have to take a pod of the class; of a selector's, the rarest here."""
        if pod_class.node_name:
            return frozenset({(NAME_FIELD, pod_class.node_name)})
        if pod_class.node_selector.equal:
            return frozenset({min(pod_class.node_selector.equal, key=lambda pair: len(self._by_pair.get(pair, ())))})
        terms = pod_class.node_affinity.terms if pod_class.node_affinity is not None else ()
        wanted = [
            next((one for one in (*term.fields, *term.expressions) if one.operator == "In"), None) for term in terms
        ]
        pairs = frozenset((one.key, value) for one in wanted if one is not None for value in one.values)
        return pairs if pairs and None not in wanted else frozenset({ANYWHERE})

    def _kinds_for(self, snapshot: Snapshot, rows: Rows) -> dict[Hashable, _Kind]:
        """Return the kinds that one of the nodes has the label for."""
        pairs = {ANYWHERE}
        for row in rows.tolist():
            node = snapshot.ledger.cluster.nodes[row]
            if node is not None:
                pairs.update(node.metadata.labels.items())
                pairs.add((NAME_FIELD, node.metadata.name))
        return {name: kind for pair in pairs for name, kind in self._by_pair.get(pair, {}).items()}


def fulfilled(snapshot: Snapshot, hope: RequeueHint, nodes: Iterable[str]) -> bool:
    """Tell whether it may help somebody that these nodes have become better, as they are now, or are gone."""
    names = list(nodes)
    if hope.anything or not hope.homes.isdisjoint(names):
        return True
    rows = _rows(snapshot, names)
    return any(_takes(snapshot, pod_class, rows) for pod_class in hope.classes)


def _rows(snapshot: Snapshot, names: Iterable[str]) -> Rows:
    row_of = snapshot.ledger.cluster.row_of
    return np.array([row_of[name] for name in names if name in row_of], dtype=np.intp)


def _takes(snapshot: Snapshot, pod_class: PodClass, rows: Rows) -> bool:
    rows = rows[node_resources.passes(pod_class, snapshot.ledger, rows)]
    return bool(len(rows)) and bool(statically_feasible(pod_class, snapshot.ledger.cluster, rows).any())


def _helped(kind: _Kind, snapshot: Snapshot, rows: Rows) -> Iterator[Hashable]:
    ledger = snapshot.ledger
    rows = rows[statically_feasible(kind.pod_class, ledger.cluster, rows)]
    columns = {name: place for place, name in enumerate(ledger.classes.axis.names)}
    return kind.helped(ledger.allocatable[rows] - ledger.used[rows], columns)


def _name(pod_class: PodClass) -> Hashable:
    """Return what decides, room aside, which nodes pods of a class may use."""
    return pod_class.node_name, pod_class.node_selector, pod_class.node_affinity, pod_class.tolerations
