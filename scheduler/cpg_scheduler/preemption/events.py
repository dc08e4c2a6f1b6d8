"""What the scheduling loop reports to the preemption machine, beside cluster events and the executor's outcomes."""

from collections.abc import Mapping

from msgspec import Struct

from cpg_scheduler.keys import UnitKey


class PodsPlaced(Struct, frozen=True):
    """The engine has placed pods of a unit, by UID, at these nodes; their binds are not assumed yet."""

    unit: UnitKey
    nodes: Mapping[str, str]


class PodsAssumed(Struct, frozen=True):
    """The binds of the pods that were placed are assumed in the cache."""

    unit: UnitKey


class BindsFailed(Struct, frozen=True):
    """Binds of a unit have failed: the pods, by UID, and the nodes that they were to be bound to."""

    unit: UnitKey
    nodes: Mapping[str, str]


class CorrectionDue(Struct, frozen=True):
    """It is time to compare what the API shows of preemptions with what is active."""


class UnitInadmissible(Struct, frozen=True):
    """A unit cannot be attempted any more."""

    unit: UnitKey
