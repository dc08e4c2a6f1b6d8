"""What a search remembers for the explanation, and how the reports are made of it.

For each group one picture is kept: that of the attempt that came furthest, with the reports of all groups below as
they were in it. Domains are never mixed, so what a parent says of its children is what they say of themselves: its
counts are a tally of their statuses. Whoever is asked anew starts without a note.

Counting is cheap and always done, since it decides whether evictions could help. Looking at the nodes for reasons
costs more than a small gang's whole cycle, so that is done only where the options ask for detail.
"""

from collections import Counter
from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.closeness import closest, cut_off, shortage
from cpg_engine.gangs.company import AffinityOrder
from cpg_engine.gangs.domain_choice import DomainOffer, DomainSurvey
from cpg_engine.gangs.feasibility import Needs
from cpg_engine.gangs.placement import PlacedGroup, depends_on_other_pods, filter_reasons, is_unresolvable
from cpg_engine.gangs.unit import UnitNode
from cpg_engine.snapshot import Snapshot
from cpg_engine.topology.domains import Scope
from cpg_engine.verdicts import CandidateDomain, FilterReason, GroupReport, Status, StatusCounts

FIRST_LOOK = 64
"""Nodes looked at before all are: mostly one of the first tells that there is hope."""

UNLABELLED = "node(s) had no label {key}"
"""Why a node is out for a group that has to be in one domain of a label; as a reason like any other."""


class GroupPlacement(Struct, frozen=True):
    """Where a group was placed, and, at a leaf, how many of its pods."""

    scope: Scope
    seats: int = 0


class AttemptReport(Struct, frozen=True):
    """An attempt: the report of a group, where, and the reports of what stands below it."""

    report: GroupReport
    scope: Scope
    below: Mapping[int, GroupReport] = {}

    @property
    def reach(self) -> tuple[bool, int, int]:
        """Return how far the attempt came: where an eviction could help, then how much fitted, on how many nodes."""
        resolvable = self.report.status is not Status.UNRESOLVABLE
        return resolvable, self.report.counts.scheduled, len(self.scope.rows)


class Diagnosis:
    """The pictures and reports, by position in the unit."""

    def __init__(
        self, snapshot: Snapshot, needs: Needs, company: AffinityOrder, *, candidates: int, detail: bool
    ) -> None:
        """Start with nothing noted; of the domains that come closest, so many are told where there is detail."""
        self._snapshot = snapshot
        self._unit = needs.unit
        self._needs = needs
        self._company = company
        self._candidates = candidates if detail else 1
        self._detail = detail
        self._reports: dict[int, GroupReport] = {}
        self._pictures: dict[int, AttemptReport] = {}
        self._idle_reports: dict[int, GroupReport] = {}

    # What the search tells.

    def ask(self, index: int) -> None:
        """Forget a node and all below it: it is asked anew."""
        self.drop(index)
        self.enter(index)

    def failed(self, index: int) -> bool:
        """Tell whether a node found no place when it was last asked."""
        return index in self._reports

    def drop(self, index: int) -> None:
        """Forget a node: it has found a place."""
        self._pictures.pop(index, None)
        self._reports.pop(index, None)

    def enter(self, index: int) -> None:
        """Forget all below a node: another domain is tried, or another way."""
        for below in range(index + 1, self._unit.nodes[index].end):
            self._pictures.pop(below, None)
            self._reports.pop(below, None)

    def leaf(self, index: int, scope: Scope, placed: PlacedGroup) -> None:
        """Note that a leaf did not fit into a scope as a whole."""
        node = self._unit.nodes[index]
        scheduled = node.scheduled + len(placed.seats)
        before = self._pictures.get(index)
        if before is not None and before.reach >= (True, scheduled, len(scope.rows)):
            return
        kinds = {member.pod_class.index: member.pod_class for member in placed.left}
        doomed = {found for found, kind in kinds.items() if self._is_hopeless(kind, scope.rows)}
        unresolvable = sum(member.pod_class.index in doomed for member in placed.left)
        counts = StatusCounts(
            minimum=node.minimum,
            scheduled=scheduled,
            unschedulable=len(placed.left) - unresolvable,
            unresolvable=unresolvable + len(node.invalid),
        )
        why = filter_reasons(self._snapshot, placed.left[0].pod_class, scope.rows) if self._detail else ()
        self.keep(index, AttemptReport(GroupReport(node.key, counts, nodes=len(scope.rows), reasons=why), scope))

    def group(self, index: int, scope: Scope, outcomes: Mapping[int, GroupPlacement]) -> AttemptReport:
        """Return the picture of an attempt to place a group, by what was placed below it."""
        node = self._unit.nodes[index]
        self._settle(outcomes)
        counts = self._tally(node, self._report)
        below = {place: self._reports[place] for place in range(index + 1, node.end) if place in self._reports}
        return AttemptReport(GroupReport(node.key, counts, blockers=self._blockers(node, self._report)), scope, below)

    def keep(self, index: int, picture: AttemptReport) -> None:
        """Keep the picture of an attempt if none before came as far."""
        before = self._pictures.get(index)
        if before is None or before.reach < picture.reach:
            self._pictures[index] = picture
            self._reports[index] = picture.report

    def fail(self, index: int, offer: DomainOffer) -> None:
        """Note that a node found no place in what it was offered, and which domains come closest."""
        picture = self._pictures.get(index)
        self.enter(index)
        if picture is not None:
            self._reports.update(picture.below)
        if offer.survey is None:
            return
        self._tell_domains(index, offer.survey, picture)

    def contradict(self, key: GroupKey) -> None:
        """Note at which group members contradict what is asked of them: it and all above it are lost."""
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

    def reports(self, outcomes: Mapping[int, GroupPlacement]) -> tuple[GroupReport, ...]:
        """Return the report of every group: of its place where it has one, else what was noted on the way."""
        self._settle(outcomes)
        found: list[GroupReport] = []
        lost, end = None, 0
        for index, node in enumerate(self._unit.nodes):
            lost = lost if index < end else None
            report = self._report(index)
            found.append(
                replace(report, invalid=node.invalid, failed_ancestor=lost) if node.invalid or lost else report
            )
            if lost is None and report.status is not Status.SUCCESS:
                lost, end = node.key, node.end
        return tuple(found)

    # Reports.

    def _report(self, index: int) -> GroupReport:
        return self._reports.get(index) or self._idle(index)

    def _settle(self, outcomes: Mapping[int, GroupPlacement]) -> None:
        """Make the reports of what is placed, from the leaves up."""
        for index in sorted(outcomes, reverse=True):
            scope = outcomes[index].scope
            node = self._unit.nodes[index]
            noted = self._reports.get(index)
            if node.leaf:
                report = self._seated(node, outcomes[index].seats, noted)
            else:
                report = GroupReport(node.key, self._tally(node, self._report))
            self._reports[index] = replace(report, domain=scope.chain[-1] if scope.chain else None)

    def _seated(self, node: UnitNode, seats: int, noted: GroupReport | None) -> GroupReport:
        """Return the report of a leaf that has its minimum; what was noted is about the pods beyond it."""
        members = node.scheduled + len(node.pending) + len(node.invalid)
        scheduled = node.scheduled + seats
        lost = noted.counts.unresolvable if noted else len(node.invalid)
        left = members - scheduled - lost
        return GroupReport(
            key=node.key,
            counts=StatusCounts(
                minimum=node.minimum,
                scheduled=scheduled,
                remaining=0 if noted else left,
                unschedulable=left if noted else 0,
                unresolvable=lost,
            ),
            nodes=noted.nodes if noted else 0,
            reasons=noted.reasons if noted else (),
        )

    def _idle(self, index: int) -> GroupReport:
        """Return the report of a node that never had its turn: it may wait for a sibling, or cannot be admitted."""
        found = self._idle_reports.get(index)
        if found is None:
            found = self._idle_reports[index] = self._waiting(self._unit.nodes[index])
        return found

    def _waiting(self, node: UnitNode) -> GroupReport:
        if not node.leaf:
            counts = self._tally(node, self._idle)
            return GroupReport(node.key, counts, blockers=self._blockers(node, self._idle) if _lacks(counts) else ())
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
        return tuple(self._unit.nodes[child].key for child in node.children if _lacks(report_of(child).counts))

    def _tell_domains(self, index: int, survey: DomainSurvey, picture: AttemptReport | None) -> None:
        """Add the domains that come closest to a report; the one that the report is about leads them."""
        short = shortage(self._needs, index, survey)
        order = closest(survey, short)
        first = None if picture is None else _place_of(picture.scope, survey)
        if picture is None or picture.report.status is Status.UNRESOLVABLE:
            # Of those that were not tried since they are too full, one might do if it were not.
            counts, place = cut_off(self._snapshot, self._needs, index, survey, order)
            if picture is None or counts.status is not Status.UNRESOLVABLE:
                self.enter(index)
                self._reports[index], first = self._untried(index, survey, counts), place
        told = order[: self._candidates].tolist()
        if first is not None:
            told = [first, *(place for place in told if place != first)][: len(told)]
        candidates = tuple(self._candidate(index, survey, place, int(short[place])) for place in told)
        self._reports[index] = replace(self._reports[index], candidates=candidates)

    def _untried(self, index: int, survey: DomainSurvey, counts: StatusCounts) -> GroupReport:
        """Return the report of a node none of whose domains was tried, and whether that is since there are none."""
        key, nodes = self._unit.nodes[index].key, len(survey.within.rows)
        if survey.partition.scopes or not nodes:
            return GroupReport(key, counts)
        return GroupReport(key, counts, nodes=nodes, reasons=(FilterReason(UNLABELLED.format(key=survey.key), nodes),))

    def _candidate(self, index: int, survey: DomainSurvey, place: int, short: int) -> CandidateDomain:
        scope = survey.partition.scopes[place]
        why: tuple[FilterReason, ...] = ()
        if self._detail:
            first = self._needs.classes[next(iter(self._needs.most[index]))]
            why = filter_reasons(self._snapshot, first, scope.rows)
        return CandidateDomain(
            domain=scope.chain[-1],
            nodes=len(scope.rows),
            fits=int(survey.fits[place]),
            wanted=self._needs.total[index],
            short=short,
            reasons=why,
        )

    def _is_hopeless(self, kind: PodClass, rows: Rows) -> bool:
        """Tell whether no eviction could make room for a pod on any of the nodes."""
        slots = self._snapshot.score_cache.of(kind).empty_slots()
        if not slots[rows[:FIRST_LOOK]].any() and not slots[rows].any():
            return True
        return depends_on_other_pods(self._snapshot, kind) and is_unresolvable(
            self._snapshot, kind, rows, self._company.of(kind)
        )


def _place_of(scope: Scope, survey: DomainSurvey) -> int | None:
    """Return which of the domains a scope is; none of them where it lies deeper, since it is only preferred."""
    return next((place for place, found in enumerate(survey.partition.scopes) if found is scope), None)


def _lacks(counts: StatusCounts) -> bool:
    """Tell whether what has and what may still get a place is not enough."""
    return counts.scheduled + counts.remaining < counts.minimum
