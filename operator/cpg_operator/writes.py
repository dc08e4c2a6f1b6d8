"""What the operator may write: plain values, made by the steps and sent by the writer."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Self, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_client.resources import Resource

MANAGER = "cpg-operator"
"""The field manager of counts, domains and health. Each apply sends all of them."""

VALIDATION_MANAGER = "cpg-operator-validation"
"""The field manager of the one condition that scheduler and operator write in turn. It is never sent empty, because
that would remove the scheduler's condition."""

DRIFT_MANAGER = "cpg-operator-templates"
"""The field manager of the condition that says whether a group matches its template."""

REMEMBERED_SECONDS = 300.0
"""For this time a write that has succeeded is remembered, where nothing shows that it has been overtaken."""

ObjectPart: TypeAlias = tuple[str, str]
"""An object, by its UID or, while it has none, by its path and name; and the part of it that a write concerns."""


class TreeKey(NamedTuple):
    """A tree by its flavour and its anchor; the anchor may have found its own parent since."""

    flavour: str
    anchor: GroupKey


class Verb(Enum):
    """The ways to write."""

    APPLY_STATUS = "apply status"
    MERGE_STATUS = "merge status"
    """Removes what other managers have written: an apply removes only what its own manager no longer sends."""
    MERGE = "merge"
    CREATE = "create"
    DELETE = "delete"
    EVENT = "event"
    """Nothing but an event. The body is not sent: it identifies the occasion, which gets one event."""


class EventSpec(Struct, frozen=True):
    """An event about a write, recorded once the write has succeeded.

    The API server keeps one event for each ``cause``; another one with that cause increases its count, unless it is
    ``only_new``.
    """

    reason: str
    note: str
    warning: bool = False
    cause: str = ""
    only_new: bool = False


class Write(Struct, frozen=True, kw_only=True):
    """One write to one ``part`` of an object: a later write to the same part replaces it.

    ``target`` is the object as it was seen. Its UID is always sent, which protects a new object of the same name. With
    ``unchanged`` its version is sent as well, so that nothing newer is overwritten. With ``requeue`` the tree is
    reconciled again after it, because another write waits for it. With ``once`` it is not repeated while it is
    remembered, whatever has become of the object since.
    """

    verb: Verb
    resource: Resource
    target: ObjectMeta
    part: str
    body: Mapping[str, Any] = {}
    manager: str = MANAGER
    unchanged: bool = False
    requeue: bool = False
    once: bool = False
    event: EventSpec | None = None

    @property
    def object_part(self) -> ObjectPart:
        """Return the object and the part of it that this concerns."""
        return self.target.uid or f"{self.resource.path()} {self.target.key}", self.part

    def repeats(self, other: Self) -> bool:
        """Return whether ``other`` makes this write redundant; the notes of two events may differ."""
        if self.verb is Verb.EVENT:
            return (self.verb, self.object_part, self.body) == (other.verb, other.object_part, other.body)
        return self == other


class StepResult(Struct, frozen=True):
    """What a step returns: writes, and after how many seconds to reconcile again even if nothing happens."""

    writes: tuple[Write, ...] = ()
    requeue_after: float | None = None


NOTHING = StepResult()


def merge_writes(writes: Iterable[Write], failing: Collection[ObjectPart] = ()) -> list[Write]:
    """Combine all merges of one object into one, and leave out what has to wait for the next reconcile.

    The bodies of merges have no top-level field in common, because each step has its own part of the object. A combined
    merge counts as the part of the last. A status that is sent over the version that was seen would be refused after
    the merge, and one that was made before a change of the spec would name the wrong generation: both wait. A merge
    that is ``failing`` goes alone and nothing waits for it, because it may be refused for ever. While something fails,
    an event without another write is not repeated.
    """
    merges: dict[str, Write] = {}
    others = []
    for write in writes:
        if write.verb is not Verb.MERGE or write.object_part in failing:
            others.append(write)
        elif (first := merges.get(write.object_part[0])) is None:
            merges[write.object_part[0]] = write
        else:
            body, unchanged = {**first.body, **write.body}, first.unchanged or write.unchanged
            merges[write.object_part[0]] = replace(write, body=body, unchanged=unchanged)
    at_once = []
    for write in others:
        if write.verb is Verb.EVENT and failing:
            continue
        merge = merges.get(write.object_part[0])
        is_status = write.verb in {Verb.APPLY_STATUS, Verb.MERGE_STATUS}
        if merge is not None and is_status and (write.unchanged or "spec" in merge.body):
            merges[write.object_part[0]] = replace(merge, requeue=True)
        else:
            at_once.append(write)
    return [*merges.values(), *at_once]
