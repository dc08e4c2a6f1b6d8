"""What a search records for the explanation, and how the reports are made of it.

For each group one attempt is kept: the one that placed most, with the reports of all groups below as they were in it.
Attempts in different domains are never mixed, so the counts of a parent are a tally of its children's statuses. A group
that is tried again starts without a record.

Counting is cheap and always done, since it decides whether evictions could help. Scanning the nodes for reasons costs
more than the whole cycle of a small gang, so that is done only where the options request detail; and in the farther
domains only for the final reports, where nothing of the unit is placed any more.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.affinity_order import AffinityOrder
from cpg_engine.gangs.bounds import DomainSurvey, closest_first, rejected_counts, shortage
from cpg_engine.gangs.device_survey import DeviceSurvey
from cpg_engine.gangs.domain_choice import DomainOffer
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.placed_tree import GroupPlacement
from cpg_engine.gangs.placement import PlacedGroup, depends_on_other_pods, filter_reasons, is_unresolvable
from cpg_engine.gangs.unit import UnitNode
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Scope
from cpg_engine.verdicts import CandidateDomain, Domain, FilterReason, GroupReport, Lack, Status, StatusCounts

FIRST_NODES = 64
"""Nodes that are checked before all others are: usually one of them has room for the pod when it is empty."""

NO_LABEL_REASON = "node(s) had no label {key}"
"""Why a node is rejected for a group that requires one domain of a label."""


class AttemptReport(Struct, frozen=True):
    """An attempt to place a group: its report, where it was tried, and the reports of the groups below it."""

    report: GroupReport
    scope: Scope
    below: Mapping[int, GroupReport] = {}

    @property
    def progress(self) -> tuple[bool, int, int]:
        """Return how far the attempt came: whether an eviction could help, how much was placed, on how many nodes."""
        is_resolvable = self.report.status is not Status.UNRESOLVABLE
        return is_resolvable, self.report.counts.scheduled, len(self.scope.rows)


class _Ancestor(Struct, frozen=True):
    """The highest group of a kind on the way to the present one, and the position after its last descendant."""

    key: GroupKey | None = None
    end: int = 0

    def key_above(self, index: int) -> GroupKey | None:
        """Return the key if a position is below the group."""
        return self.key if index < self.end else None

    def or_below(self, index: int, node: UnitNode) -> "_Ancestor":
        """Return the same group, or the one at a position that is not below it."""
        return self if index < self.end else _Ancestor(node.key, node.end)


class Diagnosis:
    """The attempts and reports, by position of the group in the unit."""

    def __init__(
        self, snapshot: Snapshot, needs: Needs, order: AffinityOrder, *, candidates: int, detail: bool
    ) -> None:
        """Start without records; with detail, so many of the closest domains are reported, else one."""
        self._snapshot = snapshot
        self._unit = needs.unit
        self._needs = needs
        self._order = order
        self._candidates = candidates if detail else 1
        self._detail = detail
        self._reports: dict[int, GroupReport] = {}
        self._attempts: dict[int, AttemptReport] = {}
        self._waiting_reports: dict[int, GroupReport] = {}
        self._candidate_rows: dict[tuple[int, Domain], Rows] = {}
        """The nodes of the domains that are reported, by position of the group."""
        self._devices = DeviceSurvey(snapshot, needs) if detail else None

    # What the search records.

    def forget(self, index: int) -> None:
        """Forget a group and all below it: it is tried again."""
        self.drop(index)
        self.forget_below(index)

    def has_failed(self, index: int) -> bool:
        """Return whether a group found no place when it was last tried."""
        return index in self._reports

    def drop(self, index: int) -> None:
        """Forget a group: it has found a place."""
        self._attempts.pop(index, None)
        self._reports.pop(index, None)

    def forget_below(self, index: int) -> None:
        """Forget all groups below one: another domain is tried, or another way."""
        for below in range(index + 1, self._unit.nodes[index].end):
            self._attempts.pop(below, None)
            self._reports.pop(below, None)

    def add_leaf(self, index: int, scope: Scope, placed: PlacedGroup) -> None:
        """Record that not all pods of a leaf fit into a scope."""
        node = self._unit.nodes[index]
        scheduled = node.scheduled + len(placed.assigned)
        before = self._attempts.get(index)
        if before is not None and before.progress >= (True, scheduled, len(scope.rows)):
            return
        classes = {pod.pod_class.index: pod.pod_class for pod in placed.unplaced}
        lost = {found for found, pod_class in classes.items() if self._is_unresolvable(pod_class, scope.rows)}
        unresolvable = sum(pod.pod_class.index in lost for pod in placed.unplaced)
        counts = StatusCounts(
            minimum=node.minimum,
            scheduled=scheduled,
            unschedulable=len(placed.unplaced) - unresolvable,
            unresolvable=unresolvable + len(node.invalid),
        )
        reasons = filter_reasons(self._snapshot, placed.unplaced[0].pod_class, scope.rows) if self._detail else ()
        if self._devices is not None:
            self._devices.note(index, reasons, placed.unplaced[0].pod_class, scope.rows)
        report = GroupReport(node.key, counts, nodes=len(scope.rows), reasons=reasons)
        self.keep_best(index, AttemptReport(report, scope))

    def group_attempt(self, index: int, scope: Scope, placements: Mapping[int, GroupPlacement]) -> AttemptReport:
        """Return the attempt to place a group, given what was placed below it."""
        node = self._unit.nodes[index]
        self._report_placed(placements)
        counts = self._tally(node, self._report)
        below = {place: self._reports[place] for place in range(index + 1, node.end) if place in self._reports}
        return AttemptReport(GroupReport(node.key, counts, blockers=self._blockers(node, self._report)), scope, below)

    def keep_best(self, index: int, attempt: AttemptReport) -> None:
        """Keep an attempt if none before came as far."""
        before = self._attempts.get(index)
        if before is None or before.progress < attempt.progress:
            self._attempts[index] = attempt
            self._reports[index] = attempt.report

    def add_failure(self, index: int, offer: DomainOffer) -> None:
        """Record that a group found no place in the domains it was offered, and which domains come closest."""
        attempt = self._attempts.get(index)
        self.forget_below(index)
        if attempt is not None:
            self._reports.update(attempt.below)
        if offer.survey is not None:
            self._add_candidates(index, offer.survey, attempt)

    def add_contradiction(self, key: GroupKey) -> None:
        """Record a group with members that contradict its topology: it and all groups above it are unresolvable."""
        nodes = self._unit.nodes
        place = next(index for index, node in enumerate(nodes) if node.key == key)
        path = [index for index, node in enumerate(nodes) if index <= place < node.end]
        for index, child in zip(path, [*path[1:], None], strict=True):
            members = len(nodes[index].children)
            if nodes[index].leaf:
                members = nodes[index].scheduled + len(nodes[index].pending) + len(nodes[index].invalid)
            counts = StatusCounts(minimum=nodes[index].minimum, unresolvable=members)
            blockers = () if child is None else (nodes[child].key,)
            self._reports[index] = GroupReport(nodes[index].key, counts, blockers=blockers)

    def reports(self, placements: Mapping[int, GroupPlacement]) -> tuple[GroupReport, ...]:
        """Return the report of every group: of its place where it has one, else what was recorded on the way."""
        self._report_placed(placements)
        found: list[GroupReport] = []
        failed, lacking = _Ancestor(), _Ancestor()
        for index, (node, lack) in enumerate(zip(self._unit.nodes, self._lacks(), strict=True)):
            report = self._with_reasons(index, self._report(index))
            if self._devices is not None:
                report = self._devices.added(index, report, self._candidate_rows)
            ancestor = lacking.key_above(index) or failed.key_above(index)
            if node.invalid or ancestor or lack:
                report = replace(report, invalid=node.invalid, failed_ancestor=ancestor, lack=lack)
            found.append(report)
            if report.status is not Status.SUCCESS:
                failed = failed.or_below(index, node)
            if lack:
                lacking = lacking.or_below(index, node)
        return tuple(found)

    def _lacks(self) -> list[Lack | None]:
        """Return for each group what it lacks that no node could replace."""
        stuck = {
            index: lack
            for index, pod_class in self._needs.classes.items()
            if (lack := _lack_of(self._snapshot.ledger, pod_class))
        }
        found: list[Lack | None] = [None if admissible else Lack.MEMBERS for admissible in self._needs.admissible]
        for index in range(len(found) - 1, -1, -1) if stuck else ():
            node = self._unit.nodes[index]
            if node.leaf:
                lacks = [lack for pod in node.pending if (lack := stuck.get(pod.pod_class.index))]
                able = node.scheduled + len(node.pending) - len(lacks)
            else:
                lacks = [lack for child in node.children if (lack := found[child])]
                able = len(node.children) - len(lacks)
            if found[index] is None and able < node.minimum:
                found[index] = next((lack for lack in lacks if lack is not Lack.MEMBERS), Lack.VOLUMES)
        return found

    # Reports.

    def _report(self, index: int) -> GroupReport:
        return self._reports.get(index) or self._waiting_report(index)

    def _report_placed(self, placements: Mapping[int, GroupPlacement]) -> None:
        """Make the reports of what is placed, from the leaves up."""
        for index in sorted(placements, reverse=True):
            scope = placements[index].scope
            node = self._unit.nodes[index]
            recorded = self._reports.get(index)
            if node.leaf:
                report = self._placed_leaf(node, placements[index].pods, recorded)
            else:
                report = GroupReport(node.key, self._tally(node, self._report))
            self._reports[index] = replace(report, domain=scope.chain[-1] if scope.chain else None)

    def _placed_leaf(self, node: UnitNode, pods: int, recorded: GroupReport | None) -> GroupReport:
        """Return the report of a leaf that has its minimum; what was recorded is about the pods beyond it."""
        members = node.scheduled + len(node.pending) + len(node.invalid)
        scheduled = node.scheduled + pods
        lost = recorded.counts.unresolvable if recorded else len(node.invalid)
        left = members - scheduled - lost
        return GroupReport(
            key=node.key,
            counts=StatusCounts(
                minimum=node.minimum,
                scheduled=scheduled,
                remaining=0 if recorded else left,
                unschedulable=left if recorded else 0,
                unresolvable=lost,
            ),
            nodes=recorded.nodes if recorded else 0,
            reasons=recorded.reasons if recorded else (),
        )

    def _waiting_report(self, index: int) -> GroupReport:
        """Return the report of a group that was not tried: it waits for a sibling, or cannot be admitted."""
        found = self._waiting_reports.get(index)
        if found is None:
            found = self._waiting_reports[index] = self._make_waiting_report(self._unit.nodes[index])
        return found

    def _make_waiting_report(self, node: UnitNode) -> GroupReport:
        if not node.leaf:
            counts = self._tally(node, self._waiting_report)
            blockers = self._blockers(node, self._waiting_report) if _is_lacking(counts) else ()
            return GroupReport(node.key, counts, blockers=blockers)
        counts = StatusCounts(
            minimum=node.minimum,
            scheduled=node.scheduled,
            remaining=len(node.pending),
            unresolvable=len(node.invalid),
        )
        return GroupReport(node.key, counts)

    def _tally(self, node: UnitNode, report_of: Callable[[int], GroupReport]) -> StatusCounts:
        """Return the counts of a group by the statuses of its children."""
        found = Counter(report_of(child).status for child in node.children)
        return StatusCounts(
            minimum=node.minimum,
            scheduled=found[Status.SUCCESS],
            remaining=found[Status.WAIT],
            unschedulable=found[Status.UNSCHEDULABLE],
            unresolvable=found[Status.UNRESOLVABLE],
        )

    def _blockers(self, node: UnitNode, report_of: Callable[[int], GroupReport]) -> tuple[GroupKey, ...]:
        return tuple(self._unit.nodes[child].key for child in node.children if _is_lacking(report_of(child).counts))

    def _add_candidates(self, index: int, survey: DomainSurvey, attempt: AttemptReport | None) -> None:
        """Add the closest domains to a report; the one that the report is about comes first."""
        short = shortage(self._needs, index, survey)
        order = closest_first(survey, short)
        first = None if attempt is None else _position_of(attempt.scope, survey)
        if attempt is None or attempt.report.status is Status.UNRESOLVABLE:
            # A domain that was not tried because it is too full might do if it were emptied.
            counts, place = rejected_counts(self._snapshot, self._needs, index, survey, order)
            if attempt is None or counts.status is not Status.UNRESOLVABLE:
                self.forget_below(index)
                self._reports[index], first = self._untried_report(index, survey, counts), place
        reported = order[: self._candidates].tolist()
        if first is not None:
            reported = [first, *(place for place in reported if place != first)][: len(reported)]
        candidates = tuple(self._candidate(index, survey, place, int(short[place])) for place in reported)
        if self._detail and candidates:
            candidates = (self._explained(index, candidates[0]), *candidates[1:])
        self._reports[index] = replace(self._reports[index], candidates=candidates, domains=len(order))

    def _untried_report(self, index: int, survey: DomainSurvey, counts: StatusCounts) -> GroupReport:
        """Return the report of a group if no domain of it was tried, with the reason where it has no domains."""
        key, nodes = self._unit.nodes[index].key, len(survey.within.rows)
        if survey.partition.scopes or not nodes:
            return GroupReport(key, counts)
        reason = FilterReason(NO_LABEL_REASON.format(key=survey.key), nodes)
        return GroupReport(key, counts, nodes=nodes, reasons=(reason,))

    def _candidate(self, index: int, survey: DomainSurvey, place: int, short: int) -> CandidateDomain:
        scope = survey.partition.scopes[place]
        self._candidate_rows[index, scope.chain[-1]] = scope.rows
        return CandidateDomain(
            domain=scope.chain[-1],
            nodes=len(scope.rows),
            fits=int(survey.fits[place]),
            wanted=self._needs.total[index],
            shortage=short,
        )

    def _with_reasons(self, index: int, report: GroupReport) -> GroupReport:
        """Return a report with the reasons in the domains that are not the closest."""
        if not self._detail or len(report.candidates) <= 1:
            return report
        closest, *others = report.candidates
        return replace(report, candidates=(closest, *(self._explained(index, found) for found in others)))

    def _explained(self, index: int, found: CandidateDomain) -> CandidateDomain:
        first = self._needs.classes[next(iter(self._needs.most[index]))]
        return replace(found, reasons=filter_reasons(self._snapshot, first, self._candidate_rows[index, found.domain]))

    def _is_unresolvable(self, pod_class: PodClass, rows: Rows) -> bool:
        """Return whether no eviction could make room for a pod on any of the nodes."""
        slots = self._snapshot.score_cache.of(pod_class).empty_slots()
        if not slots[rows[:FIRST_NODES]].any() and not slots[rows].any():
            return True
        if not depends_on_other_pods(self._snapshot, pod_class):
            return False
        return is_unresolvable(self._snapshot, pod_class, rows, self._order.companions(pod_class))


def _position_of(scope: Scope, survey: DomainSurvey) -> int | None:
    """Return which of the domains a scope is; None for a preferred domain inside one of them."""
    return next((place for place, found in enumerate(survey.partition.scopes) if found is scope), None)


def _is_lacking(counts: StatusCounts) -> bool:
    """Return whether the members that are placed or may still be are fewer than the minimum."""
    return counts.scheduled + counts.remaining < counts.minimum


def _lack_of(ledger: Ledger, pod_class: PodClass) -> Lack | None:
    """Return what the pods of a class lack that no node could replace."""
    if pod_class.volumes is not None and ledger.storage.resolve(pod_class.volumes).problem:
        return Lack.VOLUMES
    if pod_class.devices is not None and ledger.device_allocator.problem(pod_class.devices):
        return Lack.DEVICES
    return None
