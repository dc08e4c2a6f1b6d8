"""Helpers for tests of the cache: the events of changes, the room that is taken, and objects with other fields."""

from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.scheduling.forest import GroupKey
from cpg_scheduler.cache.cluster import SINGLE_POD
from cpg_scheduler.cache.events import ClusterEvents
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.testing.stage import CRD, Stage

T = TypeVar("T", bound=Struct)


def group_unit(name: str, flavour: str = CRD, kind: str = "PodGroup") -> UnitKey:
    """Return the key of the unit with this root group."""
    return UnitKey(flavour, GroupKey(kind, "default", name))


def pod_unit(name: str) -> UnitKey:
    """Return the key of the unit of a single pod."""
    return group_unit(name, SINGLE_POD, "Pod")


def events_of(stage: Stage, *things: Any) -> ClusterEvents:
    """Create or change objects; return the events of that alone."""
    stage.cache.take_events()
    stage.put(*things)
    return stage.cache.take_events()


def used_on(stage: Stage, name: str = "n1") -> dict[str, int]:
    """Return what is taken of each resource of a node, in base units."""
    ledger = stage.cache.snapshot.ledger
    row = ledger.cluster.row_of[name]
    taken = dict(zip(ledger.classes.axis.names, ledger.used[row].tolist(), strict=True))
    return {resource: amount for resource, amount in taken.items() if amount}


def with_fields(thing: T, **fields: Any) -> T:
    """Return an object with other fields in its parts, each as ``part__field=value``."""
    for path, value in fields.items():
        part, name = path.split("__")
        thing = replace(thing, **{part: replace(getattr(thing, part), **{name: value})})
    return thing
