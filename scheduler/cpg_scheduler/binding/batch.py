"""Batches of binds and their outcomes, as values.

The loop hands a ``BindBatch`` to the binder, which reports exactly one ``BindSucceeded`` or ``BindFailed`` for it, and
before that a ``BindDelayed`` whenever something takes long.
"""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_engine.decisions import Allocation
from cpg_scheduler.keys import UnitKey


class BindBatch(Struct, frozen=True):
    """The pods that one decision places, by UID, with their nodes and, of pods that have any, their allocations."""

    id: int
    unit: UnitKey
    pods: Mapping[str, Pod]
    nodes: Mapping[str, str]
    allocations: Mapping[str, tuple[Allocation, ...]] = {}


class PreBindFailed(Struct, frozen=True):
    """A PreBind plugin cannot get ready what the pods need."""

    plugin: str
    problem: str


class PreBindPending(Struct, frozen=True):
    """A PreBind plugin still waits for these objects."""

    plugin: str
    objects: tuple[str, ...]


class BindRefused(Struct, frozen=True):
    """The API server refuses the bind of a pod, and those of ``more`` others."""

    pod: str
    more: int
    node: str
    answer: str


class BindInDoubt(Struct, frozen=True):
    """The API server has not said for long whether a bind has worked."""

    node: str
    error: str


BindProblem: TypeAlias = PreBindFailed | PreBindPending | BindRefused | BindInDoubt


class BindFailure(Struct, frozen=True):
    """The pods, by UID, that are not bound, and why.

    There is no problem to report about pods that are gone, nor where the decision has become outdated; then the unit is
    attempted again at once.
    """

    uids: frozenset[str]
    problem: BindProblem | None = None
    is_outdated: bool = False


class BindSucceeded(Struct, frozen=True):
    """All pods of a batch are bound."""

    batch: BindBatch


class BindFailed(Struct, frozen=True):
    """A batch has ended, and some of its pods are not bound."""

    batch: BindBatch
    failure: BindFailure


class BindDelayed(Struct, frozen=True):
    """Pods of a batch are not bound yet, and it takes long."""

    batch: BindBatch
    failure: BindFailure


BindEvent: TypeAlias = BindSucceeded | BindFailed | BindDelayed
