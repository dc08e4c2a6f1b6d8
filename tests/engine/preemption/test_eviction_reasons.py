"""Why each victim is evicted."""

import pytest

from cpg_engine.testing.preemption_case import PreemptionCase
from cpg_engine.testing.scenario_wording import eviction_text


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ("low=2 on a", "high=2", "Pod default/high needs its 2 CPU on a"),
        ("low=500m on a", "high=2", "Pod default/high needs its 500m CPU on a"),
        ({"pod": "low= on a", "memory": "1Gi"}, {"pod": "high=", "memory": "4Gi"}, "needs its 1Gi of memory on a"),
        (
            {"pod": "low= on a", "more": {"x.io/gpu": 1}},
            {"pod": "high=", "more": {"x.io/gpu": 1}},
            "its 1 x.io/gpu on a",
        ),
    ],
)
def test_the_needed_amount_is_named_in_its_usual_unit(low: object, high: object, expected: str) -> None:
    """It is the amount that the victim holds, not that of the preemptor."""
    victim = {"priority": 1, **(low if isinstance(low, dict) else {"pod": low})}
    case = PreemptionCase([{"node": "a 2", "memory": "4Gi", "more": {"x.io/gpu": 1}}], [victim, high])
    (eviction,) = case.plan().evictions
    assert expected in eviction_text(eviction.reason)


def test_room_for_a_pod_is_room() -> None:
    """The number of pods is short."""
    case = PreemptionCase([{"node": "a 2", "pods": 1}], [{"pod": "low=1 on a", "priority": 1}, "high=1"])
    assert eviction_text(case.plan().evictions[0].reason) == "Pod default/high needs its room on a"


def test_the_domain_is_named_where_one_is_required() -> None:
    """It explains why this node was chosen."""
    pods = [{"pod": "low=2x1 on b", "priority": 1}, "1x1@high on b", "1x1@high"]
    found = PreemptionCase(["b 3 rack=r1", "a 2 rack=r2"], pods, {"high": {"gang": 2, "key": "rack"}}).plan()
    assert [eviction_text(eviction.reason) for eviction in found.evictions] == [
        "PodGroup default/high needs its 1 CPU on b (rack r1)"
    ]


def test_of_a_unit_on_several_nodes_the_first_is_named() -> None:
    """By name, of those that are needed."""
    pods = [{"pod": f"w{name}=1@whole on {name}", "priority": 1} for name in "cba"]
    groups = {"high": {"gang": 2}, "whole": {"gang": 1, "whole": True, "priority": 1}}
    found = PreemptionCase(["c 1", "b 1", "a 1"], [*pods, {"pod": "2x1@high", "nodeSelector": {}}], groups).plan()
    assert [eviction_text(eviction.reason) for eviction in found.evictions] == [
        "PodGroup default/high needs its 1 CPU on a"
    ]
