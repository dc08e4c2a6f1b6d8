"""Root units, by name: what is attempted as one, and where it stands among the others."""

from typing import NamedTuple

from cpg_api.scheduling.forest import GroupKey


class UnitKey(NamedTuple):
    """A root unit: a tree of groups of one flavour, or a single pod, of none."""

    flavour: str
    key: GroupKey


class QueueKey(NamedTuple):
    """How a root compares with others by what it is; the smaller first."""

    importance: int
    created: str
    key: UnitKey


class Rank(NamedTuple):
    """Where a root stands among those that are active; the smaller first, by when it had its last turn before age."""

    importance: int
    turn: int
    order: QueueKey
