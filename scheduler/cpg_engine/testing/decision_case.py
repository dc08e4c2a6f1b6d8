"""One decision about one tree, in the short forms of scenario files, for tests that check it in detail."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Forest
from cpg_api.scheduling.membership import membership
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, Unit, tree_unit
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.scenario_forms import Forms, GroupForm, NodeForm
from cpg_engine.verdicts import Finding, GroupReport, NextStep, StatusCounts


class NamedDecision(Struct, frozen=True):
    """A decision, by the names of pods and groups."""

    decision: Decision

    @property
    def finding(self) -> Finding:
        """Return how the search ended."""
        return self.decision.explanation.finding

    @property
    def step(self) -> NextStep | None:
        """Return the next step."""
        return self.decision.explanation.next_step

    @property
    def binds(self) -> dict[str, str]:
        """Return the names of nodes by names of pods."""
        return {bind.uid.removeprefix("uid-default-"): bind.node for bind in self.decision.binds}

    def report(self, name: str) -> GroupReport:
        """Return the report of a group."""
        return next(report for report in self.decision.explanation.reports if report.key.name == name)

    def counts(self, name: str) -> StatusCounts:
        """Return the counts of a group."""
        return self.report(name).counts

    def blockers(self, name: str) -> list[str]:
        """Return the names of the children that block a group."""
        return [key.name for key in self.report(name).blockers]


class DecisionCase:
    """Nodes, one tree, and pods that wait or run; a decision leaves the pods where they are."""

    def __init__(
        self,
        nodes: Iterable[str | Mapping[str, Any]],
        groups: Mapping[str, Mapping[str, Any] | None],
        pods: Iterable[str | Mapping[str, Any]],
    ) -> None:
        """Read the forms."""
        forms = Forms(priority=0)
        self.snapshot: Snapshot = new_snapshot()
        for form in nodes:
            for node in forms.nodes(form if isinstance(form, str) else msgspec.convert(form, NodeForm)):
                self.snapshot.ledger.put_node(node)
        (tree,) = Forest.of(forms.groups(msgspec.convert(groups, dict[str, GroupForm | None]))).trees()
        members = [pod for form in pods for pod in forms.pods(form)]
        self.pods = {pod.metadata.name: pod for pod in members}
        for pod in members:
            if pod.spec.node_name and not pod.is_terminal:
                self.snapshot.ledger.put_pod(pod, pod.spec.node_name)
        by_key = {node.key: _members(members, node.key.name) for node in tree.nodes}
        self.unit: Unit = tree_unit(tree, by_key, self.snapshot.ledger)

    def decide(self, options: SearchOptions | None = None, *, ignored: Iterable[str] = ()) -> NamedDecision:
        """Decide about the tree; raise ``AssertionError`` if that leaves a trace in the ledger."""
        before = self.trace()
        decision = decide(self.snapshot, self.unit, options or SearchOptions(), ignored=ignored)
        if self.trace() != before:
            raise AssertionError("the ledger is not what it was before the decision")
        return NamedDecision(decision)

    def trace(self) -> list[object]:
        """Return everything that a simulation may change."""
        ledger = self.snapshot.ledger
        arrays = (found for name, found in sorted(vars(ledger).items()) if name != "changed_at")
        return [ledger.mark(), *(found.tobytes() for found in arrays if isinstance(found, np.ndarray))]


def _members(pods: Iterable[Pod], group: str) -> GroupPods:
    found = [pod for pod in pods if membership(pod).group == group]
    settled = [pod for pod in found if pod.status.phase == "Succeeded" or (pod.spec.node_name and not pod.is_terminal)]
    return GroupPods(
        pending=[pod for pod in found if not pod.spec.node_name and not pod.is_terminal], scheduled=settled
    )
