"""A unit that waits, and the check whether it would be placed after a change."""

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_cli.analysis.assessment import Assessment, PlannedEviction, named
from cpg_cli.analysis.changes import ObjectChange, applied
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_engine.gangs.next_step import blocking_path
from cpg_engine.verdicts import CandidateDomain, Finding, GroupReport
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.inadmissible import Inadmissible, UnitProblem
from cpg_scheduler.units import SchedulableUnit, build_unit


class OutOfTimeError(Exception):
    """The time for checks is up."""


class Counterfactual(Struct, frozen=True):
    """A change after which the unit is placed; the ``evictions`` that it needs."""

    kind: str
    text: str
    changes: tuple[ObjectChange, ...] = ()
    evictions: tuple[PlannedEviction, ...] = ()


class Case:
    """A unit that waits, as it was assessed."""

    def __init__(
        self, scheduler: OfflineScheduler, assessment: Assessment, *, deadline: float, clock: Callable[[], float]
    ) -> None:
        """Check changes until the deadline."""
        self.scheduler = scheduler
        self.assessment = assessment
        self._deadline = deadline
        self._clock = clock
        self._binds = len(assessment.decision.binds) if assessment.decision is not None else 0

    @property
    def cache(self) -> ClusterCache:
        """The objects."""
        return self.scheduler.cache

    @property
    def flavour(self) -> str:
        """The flavour of the unit's groups."""
        return self.assessment.unit.flavour

    @property
    def problem(self) -> UnitProblem | None:
        """Why the unit cannot be attempted, if it cannot."""
        attempt = self.assessment.attempt
        return attempt.problem if isinstance(attempt, Inadmissible) else None

    @property
    def unit(self) -> SchedulableUnit | None:
        """The unit, if it can be attempted."""
        attempt = self.assessment.attempt
        return attempt if isinstance(attempt, SchedulableUnit) else None

    @cached_property
    def pods(self) -> Sequence[Pod]:
        """The pending pods, by name."""
        attempt = self.assessment.attempt
        found = attempt.pods if isinstance(attempt, Inadmissible) else attempt.pods.values()
        return sorted(found, key=lambda pod: pod.metadata.key)

    @cached_property
    def groups(self) -> dict[GroupKey, Group]:
        """The groups, with the fields from their templates; parents before children."""
        return {key_of(group): group for group in self.assessment.attempt.groups}

    @cached_property
    def path(self) -> Sequence[GroupReport]:
        """The reports from the root to the group that blocks it."""
        if self.assessment.decision is None:
            return ()
        reports = {report.key: report for report in self.assessment.decision.explanation.reports}
        return blocking_path(reports, next(iter(reports.values())))

    @property
    def closest(self) -> CandidateDomain | None:
        """The closest of the domains that were considered last on the path."""
        return next((report.candidates[0] for report in reversed(self.path) if report.candidates), None)

    def check_time(self) -> None:
        """Raise if the time is up."""
        if self._clock() > self._deadline:
            raise OutOfTimeError

    def fits(self, changes: Sequence[ObjectChange]) -> bool:
        """Return whether the unit would be placed after changes, or more of it than now."""
        if not changes:
            return False
        self.check_time()
        with applied(self.cache, changes):
            key = self.cache.current_unit(self.assessment.unit)
            unit = build_unit(self.cache, key)
            if isinstance(unit, Inadmissible):
                return False
            decision = self.scheduler.decide(key, unit)
        return decision.explanation.finding is Finding.PLACED and len(decision.binds) > self._binds

    def change_group(self, key: GroupKey, after: Group) -> ObjectChange:
        """Return the change of a group."""
        return ObjectChange(self.cache.stores[self.flavour].forest.groups[key], after, self.flavour)

    def members(self, key: GroupKey) -> list[Pod]:
        """Return the pods of a PodGroup, by name."""
        return sorted(self.cache.members(self.flavour, key), key=lambda pod: pod.metadata.key)

    def alike(self, key: GroupKey) -> list[GroupKey]:
        """Return the groups that were made from the same template as a group, which comes first."""
        reference = self.groups[key].spec.workload_ref
        others = [other for other, group in self.groups.items() if reference and group.spec.workload_ref == reference]
        return [key, *(other for other in others if other != key and other.kind == key.kind)]


def names_of(keys: Iterable[GroupKey]) -> str:
    """Return the names of groups."""
    return named([key.name for key in keys])


def smallest(numbers: range, suffices: Callable[[int], bool]) -> int | None:
    """Return the first number that suffices, where all after it do as well; None where not even the last does."""
    if not numbers or not suffices(numbers[-1]):
        return None
    low, high = 0, len(numbers) - 1
    while low < high:
        middle = (low + high) // 2
        if suffices(numbers[middle]):
            high = middle
        else:
            low = middle + 1
    return numbers[high]
