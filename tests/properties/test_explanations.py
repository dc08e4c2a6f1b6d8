"""What holds for every explanation, whatever the cluster and the tree."""

from collections import Counter

import hypothesis.strategies as st
import msgspec
from hypothesis import assume, given
from msgspec.structs import replace

from cpg_api.scheduling.attempts import MAX_ATTEMPT_BYTES, MAX_CLOSEST_DOMAINS, AttemptFinding, LastAttempt
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import Unit
from cpg_engine.testing.builders import pod
from cpg_engine.testing.oracle import Situation, find
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_engine.testing.strategies import cases, situations
from cpg_engine.verdicts import Finding, GroupReport, Status
from cpg_scheduler.status.attempts import last_attempt, search_result
from cpg_scheduler.status.messages.attempts import group_messages

OPTIONS = st.builds(SearchOptions, budget=st.sampled_from([0, 3, 100]), detail=st.booleans())
NOW = "2026-11-20T12:00:00Z"
FILLERS = st.lists(st.sampled_from([0, 1, 2]), min_size=4, max_size=4)


def decided(situation: Situation, options: SearchOptions) -> tuple[Unit, Decision]:
    """Return the tree of a situation as the engine has it, and the decision about it."""
    simulator = ClusterSimulator.of(situation, options)
    roots = [root for root in simulator.roots() if root.tree is not None]
    assume(roots)
    return simulator.unit(roots[0]), simulator.decide(roots[0])


def filled(situation: Situation, cpus: list[int]) -> Situation:
    """Return the situation with other pods on its nodes."""
    strangers = [
        pod(f"stranger-{number}", cpu=cpu, node_name=node.metadata.name)
        for number, (node, cpu) in enumerate(zip(situation.nodes, cpus, strict=False))
        if cpu
    ]
    return replace(situation, pods=(*situation.pods, *strangers))


def emptied(situation: Situation) -> Situation:
    """Return the situation without all other pods."""
    groups = {node.key.name for node in situation.tree.nodes}
    return replace(situation, pods=tuple(found for found in situation.pods if membership(found).group in groups))


def is_rejected_by_bounds(report: GroupReport) -> bool:
    """Return whether a group failed by its bounds, so that its children were not tried."""
    return bool(report.status is not Status.SUCCESS and not report.blockers)


@cases(500)
@given(situations(), FILLERS, OPTIONS)
def test_a_group_tallies_its_children(situation: Situation, cpus: list[int], options: SearchOptions) -> None:
    """At every level the counts are a tally of the children's statuses, and blockers are those that failed."""
    unit, decision = decided(filled(situation, cpus), options)
    assume(decision.explanation.finding is not Finding.CONTRADICTION)
    reports = decision.explanation.reports
    for node, report in zip(unit.nodes, reports, strict=True):
        counts = report.counts
        if node.leaf or is_rejected_by_bounds(report):
            members = len(node.children) or node.scheduled + len(node.pending) + len(node.invalid)
            assert sum((counts.scheduled, counts.remaining, counts.unschedulable, counts.unresolvable)) == members
            continue
        tally = Counter(reports[child].status for child in node.children)
        numbers = (counts.scheduled, counts.remaining, counts.unschedulable, counts.unresolvable)
        assert numbers == tuple(tally[status] for status in Status)


@cases(300)
@given(situations(), FILLERS, OPTIONS)
def test_binds_agree_with_the_reports(situation: Situation, cpus: list[int], options: SearchOptions) -> None:
    """The binds of a leaf are those that its report counts, and all are in the domain that it names."""
    found = filled(situation, cpus)
    unit, decision = decided(found, options)
    assume(decision.explanation.finding is Finding.PLACED)
    binds = {bind.uid: bind.node for bind in decision.binds}
    labels = {node.metadata.name: node.metadata.labels for node in found.nodes}
    for node, report in zip(unit.nodes, decision.explanation.reports, strict=True):
        bound = [binds[member.uid] for member in node.pending if member.uid in binds]
        if bound:
            assert node.scheduled + len(bound) == report.counts.scheduled
        if bound and report.domain is not None:
            assert {labels[name].get(report.domain.key) for name in bound} == {report.domain.value}


@cases(1000)
@given(situations(), FILLERS, OPTIONS)
def test_what_is_unresolvable_fits_no_empty_cluster(
    situation: Situation, cpus: list[int], options: SearchOptions
) -> None:
    """Where the root says that no eviction helps, there is no placement without the other pods either."""
    unit, decision = decided(filled(situation, cpus), options)
    explanation = decision.explanation
    assume(explanation.finding is not Finding.CONTRADICTION)
    assume(not any(node.invalid for node in unit.nodes))
    if explanation.reports[0].status is Status.UNRESOLVABLE:
        assert find(emptied(situation)) is None


@cases(300)
@given(situations(), FILLERS, OPTIONS)
def test_a_failure_has_a_next_step(situation: Situation, cpus: list[int], options: SearchOptions) -> None:
    """It names a group of the tree that has not got its minimum, and a positive number."""
    _, decision = decided(filled(situation, cpus), options)
    explanation = decision.explanation
    step = explanation.next_step
    assert (step is None) == (explanation.finding is Finding.PLACED)
    if step is not None:
        (report,) = (report for report in explanation.reports if report.key == step.group)
        assert report.status in {Status.UNSCHEDULABLE, Status.UNRESOLVABLE}
        assert step.count > 0 or step.remedy.value in {"ChangeDemands", "RaiseBudget", "MoveMembers"}
        assert not (report.blockers and report.key.kind == PodGroup.kind)


@cases(300)
@given(situations(dependent=True), FILLERS)
def test_detail_changes_nothing_but_detail(situation: Situation, cpus: list[int]) -> None:
    """Findings, counts, binds and the next step are the same with and without detail."""
    (_, short), (_, long) = (decided(filled(situation, cpus), SearchOptions(detail=detail)) for detail in (False, True))
    assert short.binds == long.binds
    assert short.explanation.next_step == long.explanation.next_step
    assert [report.counts for report in short.explanation.reports] == [
        report.counts for report in long.explanation.reports
    ]


@cases(500)
@given(situations(), FILLERS, st.sampled_from([0, 3, 100]))
def test_the_attempt_of_a_group_is_small_and_agrees_with_its_condition(
    situation: Situation, cpus: list[int], budget: int
) -> None:
    """It is placed if there is no message, else it is blocked at a group that the message names."""
    options = SearchOptions(budget=budget, detail=True, candidates=MAX_CLOSEST_DOMAINS)
    _, decision = decided(filled(situation, cpus), options)
    explanation = decision.explanation
    messages = group_messages(explanation)
    result = search_result(explanation, number=1)
    for key, message in messages.items():
        attempt = last_attempt(result, key, NOW)
        assert len(msgspec.json.encode(attempt)) <= MAX_ATTEMPT_BYTES
        assert msgspec.json.decode(msgspec.json.encode(attempt), type=LastAttempt) == attempt
        if not message:
            assert attempt == LastAttempt(AttemptFinding.PLACED, NOW, 1)
            continue
        assert attempt.blocked_at is not None
        assert attempt.next_step is not None
        blocking = f"{attempt.blocked_at.kind} {key.namespace}/{attempt.blocked_at.name}"
        assert blocking == str(key) or blocking in message or explanation.finding is Finding.CONTRADICTION
