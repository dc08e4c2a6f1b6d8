"""What the operator may ask to be written: plain values, made by the steps and carried out by the one door."""

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, Self

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import GroupKey
from cpg_client.resources import Resource

MANAGER = "cpg-operator"
"""The field manager of counts, domains and health, of which each apply sends all."""

VALIDATION = "cpg-operator-validation"
"""The field manager of the one condition that scheduler and operator write in turn: never sent empty, hence never
taken away from under the scheduler."""


class TreeKey(NamedTuple):
    """A tree by its flavour and its anchor, as far as that is known: a root may have found its parent since."""

    flavour: str
    anchor: GroupKey


class Verb(Enum):
    """The ways to write."""

    APPLY_STATUS = "apply status"
    MERGE_STATUS = "merge status"
    """Takes away what others have written: of a manager's own, what it applies no more goes by itself."""
    MERGE = "merge"
    CREATE = "create"
    DELETE = "delete"
    TELL = "tell"
    """Nothing but an event; the body is not sent, and says what it is about, of which it is told once."""


class EventSpec(Struct, frozen=True):
    """An event about what is written, told once the write has worked."""

    reason: str
    note: str
    warning: bool = False


class Write(Struct, frozen=True, kw_only=True):
    """One write. ``part`` says of what: of two about one part of an object, only the later is sent.

    ``target`` is the object as it was seen: its UID always goes along, so that a namesake is safe, and with
    ``unchanged`` its version too, so that nothing newer is overwritten. With ``again`` the tree is looked at once more
    after it: something else has waited for it.
    """

    verb: Verb
    resource: Resource
    target: ObjectMeta
    part: str
    body: Mapping[str, Any] = {}
    manager: str = MANAGER
    unchanged: bool = False
    again: bool = False
    word: EventSpec | None = None

    @property
    def place(self) -> tuple[str, str]:
        """Return the object, by its UID or, while it has none, by its name, and the part of it."""
        return self.target.uid or f"{self.resource.path()} {self.target.key}", self.part

    def repeats(self, other: Self) -> bool:
        """Tell whether another write makes this one idle; of what is only told, the words may differ."""
        if self.verb is Verb.TELL:
            return (self.verb, self.place, self.body) == (other.verb, other.place, other.body)
        return self == other


class StepResult(Struct, frozen=True):
    """What a step wants: writes, and to be asked again in so many seconds even if nothing happens."""

    writes: tuple[Write, ...] = ()
    again_in: float | None = None


NOTHING = StepResult()


def merge_writes(writes: Iterable[Write], failing: Collection[tuple[str, str]] = ()) -> list[Write]:
    """Make one of all merges of one object, and let what cannot go with them wait for the next look.

    The merges' bodies have no field of the first level in common, since each step has its own part of the object; they
    go as the part of the last. A status that goes over the very version that was seen would be refused after a merge,
    and one that was made before a change of the spec would name the wrong generation. A merge that is ``failing``, by
    its place, goes alone, and nothing waits for it: it may be refused for ever. A word alone, which says what other
    writes do, is not said again meanwhile.
    """
    merges: dict[str, Write] = {}
    others = []
    for write in writes:
        if write.verb is not Verb.MERGE or write.place in failing:
            others.append(write)
        elif (first := merges.get(write.place[0])) is None:
            merges[write.place[0]] = write
        else:
            body, unchanged = {**first.body, **write.body}, first.unchanged or write.unchanged
            merges[write.place[0]] = replace(write, body=body, unchanged=unchanged)
    at_once = []
    for write in others:
        if write.verb is Verb.TELL and failing:
            continue
        merge = merges.get(write.place[0])
        is_status = write.verb in {Verb.APPLY_STATUS, Verb.MERGE_STATUS}
        if merge is not None and is_status and (write.unchanged or "spec" in merge.body):
            merges[write.place[0]] = replace(merge, again=True)
        else:
            at_once.append(write)
    return [*merges.values(), *at_once]
