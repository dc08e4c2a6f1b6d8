"""The jobs that are performed: how far each has come, and which of its units starts next.

At most ``max_in_flight`` units are in flight over all jobs, first come, first served, so that a refusal stops most of
a job. The first unit of each namespace is a scout: the others start after it, because what forbids an eviction mostly
forbids it for a namespace. A unit that stalls, since its requests keep failing, gives its place to the next one.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import count

from msgspec import Struct, field

from cpg_api.core.pod import Pod
from cpg_scheduler.preemption.jobs import EndJob, EvictionJob, Preemptor, StartJob, Victim
from cpg_scheduler.preemption.outbox import Outbox
from cpg_scheduler.preemption.states import ActivePreemption


class JobProgress(Struct, eq=False):
    """How far a job has come; ``preemption`` is None where the preemptor is gone."""

    job: EvictionJob
    preemption: ActivePreemption | None = None
    is_preparing: bool = True
    scouts: set[int] = field(default_factory=set)
    """The units, by number, that have to be evicted before the ``held`` ones start."""
    held: Sequence[int] = ()
    unfinished: set[int] = field(default_factory=set)
    has_worked: bool = True

    def first_units(self) -> Sequence[int]:
        """Return the units that start at once: the scouts, or all of a job that a previous leader has begun."""
        victims = self.job.victims
        if self.job.is_resumed:
            first = tuple(range(len(victims)))
        else:
            scouts: dict[str, int] = {}
            for number, victim in enumerate(victims):
                scouts.setdefault(victim.pods[0].metadata.namespace, number)
            first = tuple(scouts.values())
            self.scouts = set(first)
            self.held = [number for number in range(len(victims)) if number not in self.scouts]
        self.unfinished = set(first)
        return first

    def finish(self, number: int, *, has_worked: bool) -> Sequence[int]:
        """Note the outcome of a unit; return the units that start now."""
        self.unfinished.discard(number)
        self.has_worked &= has_worked
        if number not in self.scouts:
            return ()
        self.scouts.discard(number)
        if self.scouts or not self.has_worked:
            return ()
        released, self.held = self.held, ()
        self.unfinished.update(released)
        return released


class Evictions:
    """All jobs, and the places for units in flight."""

    def __init__(self, max_in_flight: int, outbox: Outbox) -> None:
        """Start without any job."""
        self._max_in_flight = max_in_flight
        self._outbox = outbox
        self._ids = count(1)
        self._jobs: dict[int, JobProgress] = {}
        self._waiting: deque[tuple[int, int]] = deque()
        self._in_flight: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self._jobs)

    def get(self, job_id: int) -> JobProgress:
        """Return how far a job has come."""
        return self._jobs[job_id]

    def pods(self) -> frozenset[str]:
        """Return the victims, by UID, of all jobs that have not ended."""
        return frozenset(pod.metadata.uid for victim in self._victims() for pod in victim.pods)

    def groups(self) -> frozenset[str]:
        """Return the groups, by UID, that jobs that have not ended evict as a whole."""
        return frozenset(group.metadata.uid for victim in self._victims() for group in victim.groups)

    def _victims(self) -> Iterator[Victim]:
        return (victim for progress in self._jobs.values() for victim in progress.job.victims)

    def is_preparing(self, job_id: int) -> bool:
        """Return whether the executor may still be nominating pods for a job."""
        return job_id in self._jobs and self._jobs[job_id].is_preparing

    def start(
        self,
        preemptor: Preemptor,
        victims: Sequence[Victim],
        *,
        preemption: ActivePreemption | None,
        nominations: Sequence[tuple[Pod, str]] = (),
        is_resumed: bool = False,
    ) -> None:
        """Start a job; the units of a resumed one may start at once."""
        job = EvictionJob(
            id=next(self._ids),
            preemptor=preemptor,
            victims=victims,
            nominations=nominations,
            is_resumed=is_resumed,
        )
        self._jobs[job.id] = progress = JobProgress(job, preemption)
        if preemption is not None:
            preemption.job_id = job.id
        self._outbox.add(StartJob(job))
        if is_resumed:
            self.proceed(progress)

    def proceed(self, progress: JobProgress) -> None:
        """Let the first units of a job start."""
        progress.is_preparing = False
        self._line_up(progress, progress.first_units())

    def next(self) -> tuple[JobProgress, int] | None:
        """Return the unit that starts now, by its number in its job, and give it a place; None where there is none."""
        if not self._waiting or len(self._in_flight) >= self._max_in_flight:
            return None
        unit = self._waiting.popleft()
        self._in_flight.add(unit)
        return self._jobs[unit[0]], unit[1]

    def stall(self, job_id: int, number: int) -> None:
        """Free the place of a unit that is still in flight."""
        self._in_flight.discard((job_id, number))

    def finish(self, job_id: int, number: int, *, has_worked: bool) -> None:
        """Note the outcome of a unit, and end its job with the last of its units."""
        self._in_flight.discard((job_id, number))
        progress = self._jobs[job_id]
        self._line_up(progress, progress.finish(number, has_worked=has_worked))

    def end(self, progress: JobProgress, *, has_worked: bool) -> None:
        """End a job."""
        del self._jobs[progress.job.id]
        self._outbox.add(EndJob(progress.job.id, has_worked))

    def _line_up(self, progress: JobProgress, numbers: Sequence[int]) -> None:
        self._waiting.extend((progress.job.id, number) for number in numbers)
        if not progress.unfinished:
            self.end(progress, has_worked=progress.has_worked)
