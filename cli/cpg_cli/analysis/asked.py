"""Explain a unit by what the scheduler that leads has answered."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cpg_api.scheduling.attempts import LastAttempt
from cpg_cli.analysis.answers import AnswerSource, ExplainAnswer, TreeName
from cpg_cli.analysis.assessment import OUTCOMES, PlannedEviction, PreemptionAnswer, evictions_text, named
from cpg_cli.analysis.explanation import ON_CHANGE, attempt_of_explanation
from cpg_engine.preemption.values import PlanOutcome
from cpg_engine.verdicts import Explanation, Finding
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.status.messages.attempts import failure_reasons


def explain_asked(
    unit: UnitKey,
    answer: Mapping[str, Any],
    queue: Sequence[Mapping[str, Any]],
    source: AnswerSource,
    *,
    recorded: LastAttempt | None,
) -> ExplainAnswer:
    """Return what the scheduler has answered about a unit that waits, and about its place in the queue."""
    tree = TreeName(unit.flavour, *unit.key)
    row = next((one for one in queue if one["root"] == str(unit.key) and one["flavour"] == unit.flavour), {})
    again = f"tried again {row['nextAttempt']}" if row else ""
    if "explanation" not in answer:
        return ExplainAnswer(
            tree=tree,
            state="Waiting",
            summary="waits",
            reason=str(answer.get("reason", "")),
            message=str(answer.get("message", "")),
            attempt=recorded,
            next_attempt=again,
            source=source,
        )
    explanation = msgspec.convert(answer["explanation"], Explanation)
    root, is_placed = explanation.reports[0].key, explanation.finding is Finding.PLACED
    attempt = attempt_of_explanation(explanation, recorded)
    return ExplainAnswer(
        tree=tree,
        state="Fits" if is_placed else "Waiting",
        summary="fits: it will be placed at the next attempt" if is_placed else "waits",
        reason="" if is_placed else failure_reasons(explanation)[root],
        message=str(answer["messages"].get(str(root), "")),
        attempt=msgspec.structs.replace(attempt, number=row.get("attempts", attempt.number)),
        preemption=_preemption(answer["preemption"]),
        next_attempt=again or ON_CHANGE,
        source=source,
    )


def _preemption(plan: Mapping[str, Any]) -> PreemptionAnswer | None:
    evictions = msgspec.convert(plan["evictions"], tuple[PlannedEviction, ...])
    if plan["underWay"]:
        waits = tuple(plan["waitsFor"])
        return PreemptionAnswer("Ongoing", f"under way: waits for the end of {named(waits)}", evictions, waits)
    if plan["outcome"] == PlanOutcome.PLANNED:
        text = f"would evict {evictions_text(evictions)}" if evictions else "not needed: pods that terminate make room"
        return PreemptionAnswer("WouldEvict" if evictions else "Ongoing", text, evictions)
    if plan["outcome"] is None:
        return None
    outcome = "NoHelp" if plan["outcome"] == PlanOutcome.NOT_HELPFUL else plan["outcome"]
    return PreemptionAnswer(outcome, OUTCOMES[outcome])
