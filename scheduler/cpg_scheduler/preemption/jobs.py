"""What the preemption machine and the executor exchange: jobs, instructions and outcomes, all of them frozen values.

The machine returns instructions, the scheduling loop has the executor perform them, and the executor puts what became
of them into the loop's inbox. Neither calls the other.
"""

from collections.abc import Sequence
from typing import Protocol, Self, TypeAlias

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_client.errors import ClientError
from cpg_client.resources import Resource
from cpg_engine.preemption.values import EvictionReason
from cpg_scheduler.instructions import Requeue, ResyncTree
from cpg_scheduler.units import SchedulableUnit


class Preemptor(Struct, frozen=True):
    """The root that others are evicted for: a group, or a pod that belongs to none; by key and UID."""

    key: GroupKey
    uid: str
    group: Group | None = None

    @property
    def kind(self) -> str:
        """Return its kind in lower case: pod, podgroup or compositepodgroup."""
        return self.key.kind.lower()

    @property
    def name(self) -> str:
        """Return its namespace and name."""
        return f"{self.key.namespace}/{self.key.name}"

    @classmethod
    def of(cls, unit: SchedulableUnit) -> Self:
        """Return the preemptor that a unit is: its root group, or its pod if that belongs to no group."""
        if not unit.groups:
            (pod,) = unit.pods.values()
            return cls(unit.unit.nodes[0].key, pod.metadata.uid)
        top = unit.groups[0]
        return cls(key_of(top), top.metadata.uid, top)


class Victim(Struct, frozen=True):
    """A unit that is evicted as a whole: its pods, or those that are left of it."""

    pods: Sequence[Pod]
    reason: EvictionReason | None = None
    """What the preemptor needs of it; not known after a restart."""
    groups: Sequence[Group] = ()
    """The groups that are disrupted as a whole with it."""


class EvictionJob(Struct, frozen=True, kw_only=True):
    """The victims of one plan, and the nodes that the preemptor's pods are nominated to before the first eviction."""

    id: int
    preemptor: Preemptor
    victims: Sequence[Victim]
    nominations: Sequence[tuple[Pod, str]] = ()
    is_resumed: bool = False
    """Whether a previous leader has begun to evict all of the victims."""


# Instructions.


class StartJob(Struct, frozen=True):
    """Prepare a job: ask for the deletions in a dry run, then nominate. A resumed job has nothing to prepare."""

    job: EvictionJob


class EvictUnit(Struct, frozen=True):
    """Evict one victim of a job, by its number in the job: only these pods are left of it."""

    job_id: int
    number: int
    victim: Victim
    is_partial: bool
    """Whether other pods of the unit have ended already, so that it has to be completed."""


class CancelJob(Struct, frozen=True):
    """Stop the preparation of a job, and retract the units of which no pod has been deleted."""

    job_id: int


class EndJob(Struct, frozen=True):
    """Close a job: nothing more will be asked of it."""

    job_id: int
    has_worked: bool


class Nominate(Struct, frozen=True):
    """Nominate a pod to another node than before."""

    pod: Pod
    node: str


class ClearNominations(Struct, frozen=True):
    """Remove the nominations of pods."""

    pods: Sequence[Pod]


class RetractEvictions(Struct, frozen=True):
    """Set ``DisruptionTarget`` to false on pods and groups that are not evicted after all."""

    pods: Sequence[Pod]
    groups: Sequence[Group] = ()


ExecutorInstruction: TypeAlias = (
    StartJob | EvictUnit | CancelJob | EndJob | Nominate | ClearNominations | RetractEvictions
)
PreemptionInstruction: TypeAlias = ExecutorInstruction | Requeue | ResyncTree


class EvictionEvents(Protocol):
    """What writes the events about evicted pods."""

    def preempted(
        self, pod: Pod, preemptor: Preemptor, reason: EvictionReason | None, related: tuple[Resource, ObjectMeta] | None
    ) -> None:
        """Write, when there is time, that a pod was evicted; ``related`` is the preemptor, if it is known."""


class Executor(Protocol):
    """What performs the instructions of the machine."""

    def perform(self, instruction: ExecutorInstruction) -> None:
        """Begin to perform an instruction; its outcome arrives in the inbox."""


# Outcomes.


class PlanPrepared(Struct, frozen=True):
    """All dry runs have passed and all pods have been nominated; no victim has been touched."""

    job_id: int


class PreparationStopped(Struct, frozen=True):
    """The preparation of a job has ended early, with some pods nominated perhaps."""

    job_id: int


class PodRefused(Struct, frozen=True):
    """The API server refuses to have a pod evicted, or nominated."""

    job_id: int
    pod: Pod
    error: ClientError


class UnitEvicted(Struct, frozen=True):
    """All pods of a unit have been deleted."""

    job_id: int
    number: int


class UnitStalled(Struct, frozen=True):
    """A request about a unit has failed several times in a row; it is retried, and the next unit may start."""

    job_id: int
    number: int


class UnitFailed(Struct, frozen=True):
    """A unit has not been evicted, or not all of its pods; what was written about those that stay is retracted."""

    job_id: int
    number: int


ExecutorEvent: TypeAlias = PlanPrepared | PreparationStopped | PodRefused | UnitEvicted | UnitStalled | UnitFailed
