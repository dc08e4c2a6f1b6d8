"""Explain a unit by what the user can read: decide as the scheduler does, and check what would help."""

from collections.abc import Sequence

from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.scheduling.attempts import AttemptFinding, BlockingGroup, LastAttempt, NodeRejection, SuggestedStep
from cpg_api.scheduling.forest import key_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.tolerations import untolerated_taints
from cpg_cli.analysis.answers import AnswerSource, ExplainAnswer, FitsIf, TreeName
from cpg_cli.analysis.assessment import Assessment, assess, named
from cpg_cli.analysis.counterfactuals import counterfactuals
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_engine.filters.taint_toleration import REASON as TAINTS
from cpg_engine.verdicts import Explanation, Finding, GroupReport
from cpg_scheduler.cache.cluster import SINGLE_POD
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.status.attempts import AttemptResult, last_attempt, missing_devices, search_result
from cpg_scheduler.status.messages.attempts import failure_reasons, group_messages, is_placed
from cpg_scheduler.status.messages.units import inadmissible_text
from cpg_scheduler.status.messages.wording import counted
from cpg_scheduler.units import groups_of, members_of, queue_key_of

NOMINATED = "has nodes, and waits for the end of the pods there"
ON_CHANGE = "tried again when nodes or pods change"
WHEN_COMPLETE = "tried again when its groups or pods change"


def explain(
    scheduler: OfflineScheduler,
    unit: UnitKey,
    source: AnswerSource,
    *,
    recorded: LastAttempt | None = None,
    seconds: float,
) -> ExplainAnswer:
    """Return why a unit waits; ``recorded`` is the last attempt that its status shows.

    What would help is checked for some seconds, or not at all.
    """
    tree = TreeName(unit.flavour, *unit.key)
    state = settled(scheduler, unit)
    if state is not None:
        return ExplainAnswer(tree=tree, state=state[0], summary=state[1], source=source)
    found = assess(scheduler, unit)
    answer = _waiting(scheduler, found, tree, source)
    attempt = with_taints(scheduler, found, attempt_of(found, recorded))
    if answer.state == "Nominated" and answer.preemption is not None:
        awaited = named(answer.preemption.waits_for)
        attempt = replace(attempt, next_step=SuggestedStep("Wait", text=f"wait for the end of {awaited}"))
    if answer.state in {"Fits", "Nominated"} or not seconds:
        return replace(answer, attempt=attempt)
    checked = counterfactuals(scheduler, found, seconds=seconds)
    return replace(
        answer,
        attempt=attempt,
        fits_if=tuple(FitsIf(one.kind, one.text, evictions=one.evictions) for one in checked.found),
        unchecked=checked.unchecked,
    )


def settled(scheduler: OfflineScheduler, unit: UnitKey) -> tuple[str, str] | None:
    """Return state and summary of a unit that does not wait for the scheduler; None if it does."""
    if unit.flavour != SINGLE_POD:
        return _settled_tree(scheduler, unit)
    pod = scheduler.cache.single_pod(unit.key)
    return _settled_pod(scheduler, pod) if pod is not None else None


def attempt_of(found: Assessment, recorded: LastAttempt | None = None) -> LastAttempt:
    """Return an assessment in the form of ``status.attempt``, with the time and number of the last real attempt."""
    if isinstance(found.attempt, Inadmissible):
        result = AttemptResult(recorded.number if recorded else None, problem=found.attempt.problem)
        return last_attempt(result, found.unit.key, (recorded.time if recorded else None) or "")
    if found.decision is None:
        raise ValueError(f"{found.unit.key} was not attempted")
    return attempt_of_explanation(found.decision.explanation, recorded)


def attempt_of_explanation(explanation: Explanation, recorded: LastAttempt | None) -> LastAttempt:
    """Return an explanation in the form of ``status.attempt``."""
    time, number = (recorded.time, recorded.number) if recorded is not None else (None, None)
    report = _report_to_explain(explanation)
    if explanation.finding is Finding.PLACED and is_placed(report):
        return _of_extra_pods(report, time, number)
    return last_attempt(search_result(explanation, None, number), report.key, time or "")


def with_taints(scheduler: OfflineScheduler, found: Assessment, attempt: LastAttempt) -> LastAttempt:
    """Return an attempt in which the reason of untolerated taints names them."""
    if attempt.reasons is None or isinstance(found.attempt, Inadmissible):
        return attempt
    borne = {pod.spec.tolerations for pod in found.attempt.pods.values()}
    nodes = (node for node in scheduler.cache.snapshot.ledger.cluster.nodes if node is not None)
    taints = {taint.key for node in nodes for one in borne for taint in untolerated_taints(node.spec.taints, one)}
    text = f"node(s) had untolerated taint(s) {named(sorted(taints))}"
    reasons = tuple(replace(one, text=text) if one.text == TAINTS else one for one in attempt.reasons)
    return replace(attempt, reasons=reasons)


def _report_to_explain(explanation: Explanation) -> GroupReport:
    """Return the report of the root; of a placed tree, that of a group without a place, or with pods without one."""
    reports = explanation.reports
    if explanation.finding is not Finding.PLACED:
        return reports[0]
    waiting = [one for one in reports if not is_placed(one)]
    waiting += [one for one in reports if one.counts.unschedulable or one.counts.unresolvable]
    return waiting[0] if waiting else reports[0]


def _of_extra_pods(report: GroupReport, time: str | None, number: int | None) -> LastAttempt:
    """Return the attempt for pods beyond the minimum of a group."""
    counts = report.counts
    lost = counts.unschedulable + counts.unresolvable
    return LastAttempt(
        finding=AttemptFinding.PLACED,
        time=time,
        number=number,
        blocked_at=BlockingGroup(report.key.kind, report.key.name, counts.scheduled + lost, counts.scheduled)
        if lost
        else None,
        nodes=report.nodes or None,
        reasons=tuple(NodeRejection(one.text, one.nodes) for one in report.reasons) or None,
        devices=missing_devices((report,)),
    )


def _waiting(scheduler: OfflineScheduler, found: Assessment, tree: TreeName, source: AnswerSource) -> ExplainAnswer:
    """Return the answer for a unit that was attempted, without what would help."""
    if isinstance(found.attempt, Inadmissible):
        text = inadmissible_text(found.attempt.problem)
        return ExplainAnswer(
            tree=tree,
            state="Waiting",
            summary="waits",
            reason=text.reason,
            message=text.message,
            next_attempt=WHEN_COMPLETE,
            source=source,
        )
    if found.decision is None:
        raise ValueError(f"{found.unit.key} was not attempted")
    explanation = found.decision.explanation
    state, summary = _state_of(found, explanation)
    if found.preemption is not None and scheduler.preemption.active(found.unit) is not None:
        state, summary = "Nominated", NOMINATED
    root = explanation.reports[0].key
    placed = explanation.finding is Finding.PLACED
    return ExplainAnswer(
        tree=tree,
        state=state,
        summary=summary,
        reason="" if placed else failure_reasons(explanation)[root],
        message=group_messages(explanation).get(root, ""),
        preemption=found.preemption,
        next_attempt=WHEN_COMPLETE if explanation.finding is Finding.INADMISSIBLE else ON_CHANGE,
        source=source,
    )


def _state_of(found: Assessment, explanation: Explanation) -> tuple[str, str]:
    if explanation.finding is not Finding.PLACED:
        return "Waiting", "waits"
    waiting = len(found.attempt.pods) - len(found.decision.binds if found.decision else ())
    if not waiting:
        return "Fits", "fits: it will be placed at the next attempt"
    return "Waiting", f"has its minimum; {counted(waiting, 'more pod')} wait{'s' * (waiting == 1)}"


def _settled_pod(scheduler: OfflineScheduler, pod: Pod) -> tuple[str, str] | None:
    """Return state and summary of a pod that does not wait for us."""
    if pod.is_terminal:
        return "Finished", f"has ended: {pod.status.phase}"
    if pod.is_terminating:
        return "Terminating", "is being deleted"
    if pod.spec.node_name:
        doing = "is bound to" if pod.metadata.uid not in scheduler.cache.assumed else "is being bound to"
        return "Placed", f"{doing} node {pod.spec.node_name}"
    if pod.spec.scheduler_name != scheduler.cache.scheduler_name:
        return "OtherScheduler", f"waits for another scheduler: its schedulerName is {pod.spec.scheduler_name}"
    return None


def _settled_tree(scheduler: OfflineScheduler, unit: UnitKey) -> tuple[str, str] | None:
    """Return state and summary of a tree without waiting pods, if some have nodes."""
    cache = scheduler.cache
    if queue_key_of(cache, unit) is not None:
        return None
    leaves = [key_of(group) for group in groups_of(cache, unit) if isinstance(group, PodGroup)]
    settled = [pod for key in leaves for pod in members_of(cache, unit.flavour, key).scheduled]
    everything = [pod for key in leaves for pod in cache.members(unit.flavour, key)]
    waiting = [pod for pod in everything if not (pod.spec.node_name or pod.is_terminal or pod.is_terminating)]
    if waiting or not settled:
        return None
    return "Placed", f"is placed: {_placement(settled)}"


def _placement(pods: Sequence[Pod]) -> str:
    nodes = sorted({pod.spec.node_name for pod in pods if pod.spec.node_name})
    on = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
    return f"{counted(len(pods), 'pod')} on {on}" if nodes else f"{counted(len(pods), 'pod')} succeeded"
