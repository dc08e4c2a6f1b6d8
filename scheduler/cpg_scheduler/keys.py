"""The names of units, and their order in the scheduling queue."""

from typing import NamedTuple

from cpg_api.scheduling.forest import GroupKey


class UnitKey(NamedTuple):
    """A unit: a tree of groups of one flavour, by its root, or a single pod, of no flavour."""

    flavour: str
    key: GroupKey


class QueueKey(NamedTuple):
    """The order of units by what they are: the most important first, then the oldest."""

    importance: int
    created: str
    unit: UnitKey
