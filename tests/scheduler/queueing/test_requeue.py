"""Which news concern whom."""

from collections.abc import Callable

import pytest

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.node import Taint
from cpg_api.meta import LabelSelector
from cpg_api.scheduling.forest import GroupKey
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.testing.stage import Stage

WEB = PodAffinityTerm(topology_key="rack", label_selector=LabelSelector(match_labels={"app": "web"}))
NEAR = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(WEB,)))
APART = Affinity(pod_anti_affinity=NEAR.pod_affinity)


def full() -> Stage:
    """Return a full node, a pod that waits for room, a gang that waits for a member, and one that waits for a group."""
    stage = Stage(node("n1", cpu=2, labels={"rack": "a"}), pod("big", cpu=2, node_name="n1"))
    stage.put(pod("wants", cpu=1), pod_group("gang", gang=2), pod("g1", group="gang"), pod("orphan", group="nobody"))
    stage.settle()
    stage.now += 60
    return stage


def attempts(stage: Stage) -> int:
    """Return how many roots are looked at because of the news."""
    before = len(stage.log.calls)
    stage.cycles()
    return sum(call.kwargs.get("event") in {"attempt", "held"} for call in stage.log.calls[before:])


@pytest.mark.parametrize(
    ("news", "expected"),
    [
        (lambda stage: stage.delete(stage.pod("big")), 1),
        (lambda stage: stage.put(node("n2")), 1),
        (lambda stage: stage.put(node("n2", cpu=0)), 0),
        (lambda stage: stage.put(node("n2", taints=(Taint(key="mine", effect="NoSchedule"),))), 0),
        (lambda stage: stage.put(node("n1", cpu=3, labels={"rack": "a"})), 1),
        (lambda stage: stage.put(pod("other", cpu=0, node_name="n1")), 0),
        (lambda stage: stage.put(pod("g2", group="gang")), 1),
        (lambda stage: stage.put(pod_group("gang", gang=1)), 1),
        (lambda stage: stage.put(pod_group("nobody", gang=1)), 1),
        (lambda stage: stage.put(pod_group("other", gang=1)), 0),
    ],
    ids=["gone", "new", "none", "tainted", "grown", "bound", "member", "minimum", "group", "stranger"],
)
def test_news_rouse_whom_they_may_help(news: Callable[[Stage], None], expected: int) -> None:
    """And nobody else."""
    stage = full()
    news(stage)
    assert attempts(stage) == expected


def test_a_pod_that_comes_helps_who_wants_it_near() -> None:
    """Who looks at others is roused by whatever happens at the nodes."""
    stage = full()
    stage.put(node("n3", labels={"rack": "a"}, cpu=1), pod("near", affinity=NEAR))
    stage.settle()
    assert "near" not in stage.bound()
    stage.now += 60
    stage.put(pod("web", node_name="n1", meta=metadata("web", app="web")))
    stage.settle()
    assert "near" in stage.bound()


def test_pods_that_are_alike_no_more_are_attempted_one_by_one() -> None:
    """A label counts from when somebody asks for it; until then pods that differ in it are alike."""
    stage = Stage(node("n1", cpu=1, labels={"rack": "a"}), pod("big", cpu=1, node_name="n1"))
    stage.put(
        pod("a-web", cpu=1, meta=metadata("a-web", app="web")), pod("b-db", cpu=1, meta=metadata("b-db", app="db"))
    )
    stage.settle()
    stage.put(pod("alone", affinity=APART, node_name="n1"))
    stage.delete(stage.pod("big"))
    stage.settle(60)
    assert "b-db" in stage.bound()
    assert "a-web" not in stage.bound()


class _Uncompared(frozenset[str]):
    """Labels that nobody may compare one by one."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, _: object) -> bool:
        """Fail."""
        raise AssertionError

    __ne__ = __eq__


def test_labels_that_are_asked_for_cost_a_cycle_nothing() -> None:
    """There may be tens of thousands, of pods that are long gone."""
    stage = full()
    stage.cache.snapshot.ledger.asked_labels = _Uncompared({"app", "tier"})
    stage.cycles()
    stage.put(pod_group("late", gang=1), pod("l1", group="late"))
    stage.settle()
    assert stage.bound()["l1"] == "n1"


def test_a_root_that_found_its_parent_is_a_root_no_more() -> None:
    """It is forgotten, and the tree that it is part of is attempted."""
    stage = Stage(node("n1"), pod_group("leaf", gang=1, parent="top"), pod("p", group="leaf"))
    stage.settle()
    assert stage.queue.counts()["unschedulable"] == 1
    stage.put(composite("top", gang=1))
    stage.settle()
    assert stage.bound() == {"p": "n1"}
    assert len(stage.queue) == 0


def test_a_root_whose_pods_are_gone_is_forgotten() -> None:
    """Nothing is left to be placed in it."""
    stage = full()
    stage.delete(stage.pod("g1"), stage.pod("orphan"), stage.pod("wants"))
    stage.settle()
    assert len(stage.queue) == 0


def test_a_pod_that_joins_a_group_waits_alone_no_more() -> None:
    """Its label was changed: what it was as a single pod is forgotten."""
    stage = full()
    stage.put(pod("wants", cpu=1, group="gang"))
    stage.cycles()
    alone = UnitKey("", GroupKey("Pod", "default", "wants"))
    assert alone not in stage.queue._entries
    assert stage.queue.counts()["unschedulable"] == 2


def test_the_flavour_that_a_group_is_found_in_is_where_its_pods_wait() -> None:
    """As long as neither has it, they wait in the first; nothing of that is left when the other has it."""
    stage = Stage(node("n1"), pod("p", group="late"))
    stage.settle()
    assert [key.flavour for key in stage.queue._entries] == ["native"]
    stage.put(pod_group("late", gang=1), flavour="crd")
    stage.settle()
    assert stage.bound() == {"p": "n1"}
    assert len(stage.queue) == 0
