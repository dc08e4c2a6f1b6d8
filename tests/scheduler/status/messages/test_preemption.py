"""Messages about preemption and evictions, word for word."""

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.preemption.values import EvictionReason
from cpg_engine.testing.scenario_wording import eviction_text
from cpg_engine.verdicts import Domain, Explanation, FilterReason, Finding, GroupReport, StatusCounts
from cpg_scheduler.outlook import PreemptionOutlook, PreemptionVerdict
from cpg_scheduler.status.messages.preemption import (
    eviction_message,
    preemption_cause,
    preemption_message,
    resumed_eviction_message,
)

PG = GroupKey("PodGroup", "ml", "pg")


@pytest.mark.parametrize(
    ("outlook", "expected"),
    [
        (None, ""),
        (
            PreemptionOutlook(PreemptionVerdict.ONGOING, "PodGroup", victims=2),
            "pod group preemption: found a placement for podgroup, preempting 2 victims",
        ),
        (
            PreemptionOutlook(PreemptionVerdict.ONGOING, "CompositePodGroup"),
            "pod group preemption: ongoing preemption on nominated nodes",
        ),
        (
            PreemptionOutlook(PreemptionVerdict.FORBIDDEN, "PodGroup"),
            "pod group preemption: not eligible due to preemptionPolicy=Never.",
        ),
        (
            PreemptionOutlook(PreemptionVerdict.NO_VICTIMS, "PodGroup"),
            "pod group preemption: No preemption victims found for incoming preemptor",
        ),
        (
            PreemptionOutlook(PreemptionVerdict.NO_HELP, "Pod"),
            "preemption: Preemption is not helpful for scheduling",
        ),
    ],
)
def test_the_messages_of_preemption_are_kube_schedulers(outlook: PreemptionOutlook | None, expected: str) -> None:
    """They are their own causes."""
    assert preemption_message(outlook) == preemption_cause(outlook) == expected


def test_what_would_be_wrong_after_all_evictions_is_added_in_brackets() -> None:
    """It is no part of the cause."""
    reasons = (FilterReason("Insufficient cpu", 3),)
    report = GroupReport(PG, StatusCounts(3, 2, 0, 1), nodes=5, reasons=reasons)
    outlook = PreemptionOutlook(
        PreemptionVerdict.NOT_ENOUGH, "PodGroup", explanation=Explanation(Finding.IMPOSSIBLE, (report,))
    )
    cause = "pod group preemption: evicting all lower-priority pods would not make enough room"
    assert preemption_cause(outlook) == cause
    assert preemption_message(outlook) == (
        f"{cause} (minCount (3) cannot be satisfied: room for 2 of 3 pods; 0/5 nodes are available: 3 Insufficient cpu)"
    )


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (EvictionReason(preemptor=PG, node="n1", resource="cpu", amount=1500), "needs its 1500m CPU on n1"),
        (
            EvictionReason(preemptor=PG, node="n1", resource="memory", amount=2**30, domain=Domain("rack", "r1")),
            "needs its 1Gi of memory on n1 (rack r1)",
        ),
        (EvictionReason(preemptor=PG, node="n1", resource="x.io/gpu", amount=2), "needs its 2 x.io/gpu on n1"),
        (EvictionReason(preemptor=PG, node="n1", resource="pods", amount=1), "needs its room on n1"),
        (
            EvictionReason(preemptor=PG, node="n1", domain=Domain("rack", "r1")),
            "cannot run beside it on n1 (rack r1)",
        ),
        (EvictionReason(preemptor=PG, node="n1", victim_node="n2"), "cannot run on n1 while it runs on n2"),
    ],
)
def test_an_eviction_says_what_the_preemptor_needs_and_where(reason: EvictionReason, expected: str) -> None:
    """The engine plays scenarios without a scheduler, in the same words."""
    assert eviction_message(reason) == eviction_text(reason) == f"PodGroup ml/pg {expected}"


def test_a_resumed_eviction_names_the_preemptor() -> None:
    """The reason is not known after a leader change."""
    assert resumed_eviction_message(PG) == "PodGroup ml/pg needs its place"
