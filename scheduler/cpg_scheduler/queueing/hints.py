"""What there is to know of an attempt that failed: who else would fail the same way, and what could help.

Both save attempts, never answers. A shortcut here may let an attempt be made in vain; it must never keep one from
being made that could succeed. The two rules:

1. **Alike roots fare alike.** The engine's decision depends on the ledger and on what the *likeness* of a unit holds:
   the shape of the tree, its minimums and labels, the classes of its pods in order, priority and preemption policy.
   While nothing has happened that could help the one, none of the others is attempted.
2. **Room helps where it appears.** Suppose that a unit whose pods look only at the node itself (no affinity to pods,
   spreading, ports, volumes) was proven not to fit. Then it can fit only after some node has changed for the better,
   and only if that node has room for at least one of its waiting pods now: a place that uses none of the changed nodes
   would have been there before, because on all the others there is less room than there was, if anything. Where others
   could be evicted for it, their room counts as free on both sides of the argument.

Units that the second rule does not cover hope for *anything*: whatever changes on any node may help them.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.placement import depends_on_other_pods
from cpg_engine.gangs.unit import Unit, UnitNode
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Explanation, Finding, GroupReport
from cpg_scheduler.outlook import PreemptionOutlook

UNPROVEN = frozenset({Finding.CONTRADICTION, Finding.NOT_FOUND, Finding.OUT_OF_BUDGET})
"""Findings after which any change at all may lead the search to another end."""


class RequeueHint(Struct, frozen=True):
    """What could help a root: room for a pod of one of the classes, news of a node of its own, or anything.

    Who is less important than ``below`` could be evicted for it.
    """

    classes: tuple[PodClass, ...] = ()
    homes: frozenset[str] = frozenset()
    anything: bool = False
    below: int | None = None


ANYTHING = RequeueHint(anything=True)
REVIEW = 300.0
"""Seconds after which who has been helped by nothing is attempted all the same; as kube-scheduler has it."""


class FailedAttempt(Struct, frozen=True):
    """A failed attempt; ``hope`` is None where nothing but a change of the root itself can help.

    ``likeness`` is None for a root that is like no other. The unit and its explanation are kept for those that share
    the failure; of one that could not even be tried there are none.
    """

    hope: RequeueHint | None = None
    signature: Hashable | None = None
    unit: Unit | None = None
    explanation: Explanation | None = None
    outlook: PreemptionOutlook | None = None
    """What preemption does about it."""
    review: float = REVIEW
    """Seconds after which to try again, whatever happens or does not."""

    @property
    def gist(self) -> Hashable:
        """Return what is worth telling anew when it changes: the causes, and not how many nodes have them."""
        if self.explanation is None:
            return None
        reports = tuple(_gist(report) for report in self.explanation.reports)
        return self.explanation.finding, reports, self.outlook and self.outlook.cause

    def explained_for(self, unit: Unit) -> Explanation | None:
        """Return the explanation for a unit that is alike: the same, by its own names."""
        if self.unit is None or self.explanation is None:
            return None
        names = {ours.key: theirs.key for ours, theirs in zip(self.unit.nodes, unit.nodes, strict=True)}
        step = self.explanation.next_step
        return replace(
            self.explanation,
            reports=tuple(_renamed(report, names) for report in self.explanation.reports),
            next_step=replace(step, group=names[step.group]) if step else None,
        )


def signature_of(unit: Unit, pods: Iterable[Pod]) -> Hashable | None:
    """Return what a unit has in common with all those that fare as it does, or None where it is like no other.

    Members that have a node, or that nobody could schedule, make a tree one of a kind.
    """
    if any(node.scheduled or node.invalid for node in unit.nodes):
        return None
    asked = frozenset((pod.spec.priority or 0, pod.spec.preemption_policy) for pod in pods)
    return asked, tuple(_shape(node) for node in unit.nodes)


def hint_for(snapshot: Snapshot, unit: Unit, finding: Finding, left: Collection[str]) -> RequeueHint | None:
    """Return what could help a unit of which these pods, by UID, found no place.

    Those beyond the minimum are placed greedily, so of several kinds it is not proven that there is no place, nor in
    the cycle that has just placed others.
    """
    if finding is Finding.INADMISSIBLE:
        return None
    if finding in UNPROVEN:
        return ANYTHING
    members = [member for node in unit.nodes for member in node.pending]
    kinds = {member.pod_class.index: member.pod_class for member in members if member.uid in left}
    if finding is Finding.PLACED and (len(kinds) > 1 or len(left) < len(members)):
        return ANYTHING
    if any(kind.volumes is not None or depends_on_other_pods(snapshot, kind) for kind in kinds.values()):
        return ANYTHING
    homes = frozenset(home for node in unit.nodes for home in node.member_nodes)
    return RequeueHint(classes=tuple(kinds.values()), homes=homes)


def _shape(node: UnitNode) -> tuple[Hashable, ...]:
    return (node.key.kind, node.minimum, node.end, node.required, node.preferred, tuple(_runs(node)))


def _runs(node: UnitNode) -> Iterator[tuple[int, int]]:
    """Yield the classes of the pods that wait, in order, with how many of each follow each other."""
    for index, run in groupby(member.pod_class.index for member in node.pending):
        yield index, len(tuple(run))


def _gist(report: GroupReport) -> Hashable:
    closest = report.candidates[0].reasons if report.candidates else ()
    return report.status, frozenset(reason.text for reason in (*report.reasons, *closest)), len(report.blockers)


def _renamed(report: GroupReport, names: dict[GroupKey, GroupKey]) -> GroupReport:
    blockers = tuple(names[blocker] for blocker in report.blockers)
    return replace(report, key=names[report.key], blockers=blockers)
