"""Fakes of the components that talk to the API server: they keep what they are given, and a test performs it."""

from collections.abc import Callable, Collection, Sequence

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_engine.decisions import DeviceAllocation
from cpg_scheduler.binding.batch import BindBatch
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.preemption.jobs import (
    CancelJob,
    ClearNominations,
    EndJob,
    EvictionJob,
    EvictUnit,
    ExecutorInstruction,
    Nominate,
    RetractEvictions,
    StartJob,
)
from cpg_scheduler.status.attempts import AttemptResult
from cpg_scheduler.status.updates import GroupRecovered, GroupStatusUpdate, PodStatusUpdate, StatusUpdate


class FakeBinder:
    """A binder that keeps its batches; the stage performs them."""

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self.batches: list[BindBatch] = []
        self.released: list[tuple[str, frozenset[str]]] = []

    def start(self, batch: BindBatch) -> None:
        """Keep a batch."""
        self.batches.append(batch)

    def release(self, claims: Sequence[DeviceAllocation], pods: Collection[str]) -> None:
        """Keep claims with the pods that may use them."""
        self.released.extend((one.claim, frozenset(pods)) for one in claims)


class FakeEventWriter:
    """An event writer that keeps which pods were bound."""

    def __init__(self) -> None:
        """Begin with nothing written."""
        self.bound: list[tuple[str, str]] = []

    def placed(self, pod: Pod, node: str) -> None:
        """Keep a pod and its node."""
        self.bound.append((pod.metadata.name, node))


class FakeStatusWriter:
    """A status writer that keeps the last update of each object by name, all its causes, and the number of updates."""

    def __init__(
        self, has_recovered: Callable[[UnitKey, GroupKey], bool], on_pod: Callable[[Pod, str, str], None]
    ) -> None:
        """Begin with nothing written; ``on_pod`` is called with each new condition of a pod."""
        self._has_recovered = has_recovered
        self._on_pod = on_pod
        self.pods: dict[str, tuple[str, str]] = {}
        self.groups: dict[str, tuple[bool, str, str]] = {}
        self.attempts: dict[str, AttemptResult] = {}
        """The last attempt of each group."""
        self.causes: dict[str, set[str]] = {}
        self.recovered: list[str] = []
        """The groups that have their minimum again after an eviction."""
        self.count = 0

    def write(self, update: StatusUpdate) -> None:
        """Keep an update."""
        match update:
            case PodStatusUpdate(pod=pod):
                self._keep_cause(pod.metadata.name, update.cause or update.message)
                condition = update.reason, update.message
                if self.pods.get(pod.metadata.name) != condition:
                    self.count += 1
                    self.pods[pod.metadata.name] = condition
                    self._on_pod(pod, *condition)
            case GroupStatusUpdate(group=group):
                self._keep_cause(group.metadata.name, update.cause or update.message)
                self.attempts[group.metadata.name] = update.attempt
                state = update.scheduled, update.reason, update.message
                if self.groups.get(group.metadata.name) != state:
                    self.count += 1
                    self.groups[group.metadata.name] = state
            case GroupRecovered(group=group):
                if self._has_recovered(update.unit, key_of(group)):
                    self.recovered.append(group.metadata.name)

    def _keep_cause(self, name: str, cause: str) -> None:
        self.causes.setdefault(name, set()).add(cause)


class FakeExecutor:
    """An executor that keeps its instructions; the stage performs them."""

    def __init__(self) -> None:
        """Begin with nothing to do."""
        self.jobs: dict[int, EvictionJob] = {}
        """The jobs that have not ended, by id."""
        self.preparing: list[EvictionJob] = []
        self.cancelled: set[int] = set()
        self.failed: set[int] = set()
        """The jobs that have ended without having worked."""
        self.units: list[EvictUnit] = []
        self.nominated: list[Nominate] = []
        self.cleared: list[Pod] = []
        self.retracted: list[Pod] = []
        self.retracted_groups: list[Group] = []

    @property
    def is_idle(self) -> bool:
        """Return whether there is nothing to perform."""
        return not (self.preparing or self.units or self.nominated or self.cleared or self.retracted)

    def perform(self, instruction: ExecutorInstruction) -> None:
        """Keep an instruction."""
        match instruction:
            case StartJob(job):
                self.jobs[job.id] = job
                self.preparing += [] if job.is_resumed else [job]
            case EvictUnit():
                self.units.append(instruction)
            case CancelJob():
                self.cancelled.add(instruction.job_id)
            case EndJob():
                del self.jobs[instruction.job_id]
                self.failed |= set() if instruction.has_worked else {instruction.job_id}
            case Nominate():
                self.nominated.append(instruction)
            case ClearNominations():
                self.cleared += instruction.pods
            case RetractEvictions():
                self.retracted += instruction.pods
                self.retracted_groups += instruction.groups
