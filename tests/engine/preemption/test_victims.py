"""Which units may be evicted, and their importance."""

import pytest
from msgspec.structs import replace

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.preemption.values import VictimUnit
from cpg_engine.preemption.victims import importance, potential_victims, start_ranks, uids_of, violators_first, without
from cpg_engine.testing.builders import node, pod

USUAL = VictimUnit(key=GroupKey("PodGroup", "ns", "m"), priority=5, since="2026-01-01T00:00:05Z", pods=("p", "q"))


@pytest.mark.parametrize(
    "more",
    [
        replace(USUAL, priority=6, pods=("p",)),
        replace(USUAL, key=GroupKey("CompositePodGroup", "ns", "z"), pods=("p",)),
        replace(USUAL, pods=("p", "q", "r"), since="2026-01-01T00:00:06Z"),
        replace(USUAL, since="2026-01-01T00:00:04Z", key=GroupKey("PodGroup", "ns", "z")),
        replace(USUAL, key=GroupKey("PodGroup", "ns", "a")),
    ],
)
def test_the_order_of_importance(more: VictimUnit) -> None:
    """Priority decides, then the kind, the size, the age, and at last the name."""
    assert sorted([USUAL, more], key=importance) == [more, USUAL]


def test_single_pods_and_young_pods_are_less_important() -> None:
    """A pod without a start time counts as the youngest."""
    single = replace(USUAL, key=GroupKey("Pod", "ns", "a"), pods=("p",))
    assert sorted([replace(single, since=""), single, USUAL], key=importance) == [
        USUAL,
        single,
        replace(single, since=""),
    ]


def test_only_units_of_lower_priority_with_room_are_potential_victims() -> None:
    """Pods without a known node are left out, and so are units with only such pods."""
    ledger = Ledger()
    ledger.put_node(node("n"))
    for name, home in (("p", "n"), ("q", "nowhere"), ("r", "n")):
        ledger.put_pod(pod(name), home)
    uid = {name: pod(name).metadata.uid for name in "pqrs"}

    def unit(name: str, priority: int, *pods: str) -> VictimUnit:
        return replace(
            USUAL, key=GroupKey("Pod", "ns", name), priority=priority, pods=tuple(uid[found] for found in pods)
        )

    units = [unit("equal", 9, "r"), unit("gone", 1, "q", "s"), unit("less", 1, "s", "p"), unit("more", 8, "r")]
    more, less = potential_victims(ledger, units, 9)
    assert ([more.unit.key.name, less.unit.key.name], [uid["r"], uid["p"]]) == (["more", "less"], uids_of([more, less]))
    assert (less.rows, without([more, less], [more])) == ([0], [less])
    assert violators_first([more, less], [False, True]) == [less, more]
    assert start_ranks([more, less]) == {USUAL.since: 0}
    ledger.ignore([uid["p"]])
    assert potential_victims(ledger, units, 9)[0].unit.key.name == "more"
    assert len(potential_victims(ledger, units, 9)) == 1
