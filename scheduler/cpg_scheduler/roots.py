"""Root units, by name: what is attempted as one, and where it stands among the others."""

from typing import NamedTuple

from cpg_api.scheduling.forest import GroupKey


class RootKey(NamedTuple):
    """A root unit: a tree of groups of one flavour, or a single pod, of none."""

    flavour: str
    key: GroupKey


class Order(NamedTuple):
    """Where a root stands in the queue; the smaller first."""

    importance: int
    created: str
    key: RootKey
