"""Instructions that components return to the scheduling loop, which alone performs them."""

from msgspec import Struct

from cpg_scheduler.keys import UnitKey


class Requeue(Struct, frozen=True):
    """Attempt a unit again, if it has pending pods: at once, or after a backoff."""

    unit: UnitKey
    at_once: bool


class ResyncTree(Struct, frozen=True):
    """Bring the status of a tree up to date, although nothing of it changes now."""

    tree: UnitKey
