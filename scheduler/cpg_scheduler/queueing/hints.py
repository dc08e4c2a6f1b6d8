"""What a failed attempt says about retries: which units would fail the same way, and which changes could help.

Both save attempts and never change results. An approximation here may cause a useless attempt; it must never prevent
one that would succeed. The two rules:

1. **Equivalent units fare alike.** The engine's decision depends on the ledger and on the *signature* of a unit: the
   shape of the tree, its minimums and topology constraints, the classes of its pods in order, priority and preemption
   policy. As long as no change could help one of them, none of the others is attempted.
2. **Room helps where it appears.** Take a unit that was proven not to fit, and pods that depend on the node alone
   (no pod affinity, spreading, ports, volumes). It can fit only after some node has changed for the better, and only if
   that node has room for at least one of its pending pods now. A placement that uses none of the changed nodes would
   have existed before, because on all other nodes there is less room than there was, if anything. Where pods could be
   evicted for it, their room counts as free on both sides of the argument. If it needs devices, any change of devices
   may help it as well.

Units that the second rule does not cover may be helped by *any change* on any node.
"""

from collections.abc import Collection, Hashable, Iterator
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.devices import EXTENDED_RESOURCE_PREFIX
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.cluster.axes import BASE
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.decisions import Decision
from cpg_engine.gangs.placement import depends_on_other_pods
from cpg_engine.gangs.unit import Unit, UnitNode
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Explanation, Finding, GroupReport
from cpg_scheduler.outlook import PreemptionOutlook
from cpg_scheduler.queueing.policy import MAX_SECONDS_UNSCHEDULABLE
from cpg_scheduler.units import SchedulableUnit

UNPROVEN = frozenset({Finding.CONTRADICTION, Finding.NOT_FOUND, Finding.OUT_OF_BUDGET})
"""Findings after which the search may end differently after any change at all."""


class RequeueHint(Struct, frozen=True):
    """What could help a unit: room for a pod of one of the classes, a change of a node of its members, or any change.

    Pods of units below the priority ``preempts_below`` could be evicted for it.
    """

    classes: tuple[PodClass, ...] = ()
    member_nodes: frozenset[str] = frozenset()
    any_change: bool = False
    preempts_below: int | None = None
    needs_devices: bool = False
    """Whether a change of devices could help as well."""


ANY_CHANGE = RequeueHint(any_change=True)


class FailedAttempt(Struct, frozen=True):
    """A failed attempt; without a hint, only a change of the unit itself can help.

    The signature is None for a unit that is equivalent to no other. The unit and its explanation are kept for
    equivalent units; an inadmissible unit has none.
    """

    hint: RequeueHint | None = None
    signature: Hashable | None = None
    unit: Unit | None = None
    explanation: Explanation | None = None
    outlook: PreemptionOutlook | None = None
    """What preemption does about it."""
    retry_after: float = MAX_SECONDS_UNSCHEDULABLE
    """Seconds after which the unit is attempted even if no hint activates it."""
    is_excluded: bool = False
    """Whether the bounds on room left the unit no place. If they leave it one, its backoff may end."""

    @property
    def is_unproven(self) -> bool:
        """Return whether the search may have missed a placement; such a unit is attempted again without an event."""
        return self.explanation is not None and self.explanation.finding in {Finding.NOT_FOUND, Finding.OUT_OF_BUDGET}

    @property
    def cause(self) -> Hashable:
        """Return what has to be reported again when it changes: the reasons, without the numbers of nodes."""
        if self.explanation is None:
            return None
        reports = tuple(_cause(report) for report in self.explanation.reports)
        return self.explanation.finding, reports, self.outlook and self.outlook.cause

    def explained_for(self, unit: Unit) -> Explanation | None:
        """Return the explanation for an equivalent unit, with the names of its groups."""
        if self.unit is None or self.explanation is None:
            return None
        names = {ours.key: theirs.key for ours, theirs in zip(self.unit.nodes, unit.nodes, strict=True)}
        step = self.explanation.next_step
        return replace(
            self.explanation,
            reports=tuple(_renamed(report, names) for report in self.explanation.reports),
            next_step=replace(step, group=names[step.group]) if step else None,
        )


def failed_attempt(
    snapshot: Snapshot, unit: SchedulableUnit, decision: Decision, unplaced: Collection[str]
) -> FailedAttempt:
    """Return what is remembered of a decision that leaves these pods, by UID, without a node."""
    finding = decision.explanation.finding
    return FailedAttempt(
        hint=hint_for(snapshot, unit.unit, finding, unplaced),
        signature=None if finding is Finding.PLACED else signature_of(unit),
        unit=unit.unit,
        explanation=decision.explanation,
        is_excluded=decision.is_excluded,
    )


def signature_of(unit: SchedulableUnit) -> Hashable | None:
    """Return what a unit has in common with all equivalent ones, or None if it is equivalent to no other.

    A tree with members that have a node, or that are invalid, is equivalent to no other.
    """
    nodes = unit.unit.nodes
    if any(node.scheduled or node.invalid for node in nodes):
        return None
    policies = frozenset((pod.spec.priority or 0, pod.spec.preemption_policy) for pod in unit.pods.values())
    return policies, tuple(_shape(node) for node in nodes), unit.preempts


def hint_for(snapshot: Snapshot, unit: Unit, finding: Finding, unplaced: Collection[str]) -> RequeueHint | None:
    """Return what could help a unit of which these pods, by UID, were not placed.

    Pods beyond the minimum are placed greedily. So it is not proven that there is no room for them where they are of
    several classes, or where others of the unit were placed in the same decision.
    """
    if finding is Finding.INADMISSIBLE:
        return None
    if finding in UNPROVEN:
        return ANY_CHANGE
    members = [member for node in unit.nodes for member in node.pending]
    waiting = (member.pod_class for member in members if member.uid in unplaced or member.is_expected)
    classes = {pod_class.index: pod_class for pod_class in waiting}
    if finding is Finding.PLACED and (len(classes) > 1 or len(unplaced) < len(members)):
        return ANY_CHANGE
    if any(found.volumes is not None or depends_on_other_pods(snapshot, found) for found in classes.values()):
        return ANY_CHANGE
    member_nodes = frozenset(name for node in unit.nodes for name in node.member_nodes)
    return RequeueHint(
        classes=tuple(classes.values()),
        member_nodes=member_nodes,
        needs_devices=any(_needs_devices(snapshot, found) for found in classes.values()),
    )


def _needs_devices(snapshot: Snapshot, pod_class: PodClass) -> bool:
    """Return whether pods of a class have claims, or request extended resources that are devices."""
    extended = pod_class.requests.keys() - set(BASE)
    backed = (found.spec.extended_resource_name for found in snapshot.ledger.devices.classes.values())
    return bool(pod_class.pod.spec.resource_claims) or bool(
        extended and (not extended.isdisjoint(backed) or any(map(_names_class, extended)))
    )


def _names_class(resource: str) -> bool:
    return resource.startswith(EXTENDED_RESOURCE_PREFIX)


def _shape(node: UnitNode) -> tuple[Hashable, ...]:
    return (node.key.kind, node.minimum, node.end, node.required, node.preferred, tuple(_runs(node)))


def _runs(node: UnitNode) -> Iterator[tuple[int, int]]:
    """Yield the classes of the pending pods, in order, each with the number of pods in a row that have it."""
    for index, run in groupby(member.pod_class.index for member in node.pending):
        yield index, len(tuple(run))


def _cause(report: GroupReport) -> Hashable:
    closest = report.candidates[0].reasons if report.candidates else ()
    return report.status, frozenset(reason.text for reason in (*report.reasons, *closest)), len(report.blockers)


def _renamed(report: GroupReport, names: dict[GroupKey, GroupKey]) -> GroupReport:
    blockers = tuple(names[blocker] for blocker in report.blockers)
    ancestor = names[report.failed_ancestor] if report.failed_ancestor else None
    return replace(report, key=names[report.key], blockers=blockers, failed_ancestor=ancestor)
