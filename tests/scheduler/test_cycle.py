"""Attempts: what is placed, what is not, and what the conditions say."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import SchedulingGate
from cpg_api.meta import ObjectMeta
from cpg_engine import cycle as engine_cycle
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group
from cpg_scheduler.testing.gangs import gang, logged_attempts
from cpg_scheduler.testing.stage import Stage

NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"
FULL = "0/1 nodes are available: 1 Insufficient cpu"


def test_a_gang_is_reported_as_scheduled_when_it_is_bound() -> None:
    """Not when it is placed: a bind may fail."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    assert (len(stage.binder.batches), stage.status.groups) == (1, {})
    stage.complete_binds()
    assert stage.status.groups == {"pg": (True, "", "")}
    assert (stage.bound(), len(stage.queue)) == ({"pg-0": "n1", "pg-1": "n1"}, 0)


def test_every_pod_of_a_gang_that_does_not_fit_gets_the_condition() -> None:
    """Also pods that would fit alone, because autoscalers read the condition."""
    stage = Stage(node("n1", cpu=1), *gang("pg"))
    stage.settle()
    message = f"minCount (2) cannot be satisfied: room for 1 of 2 pods; {FULL}; {NO_VICTIMS}"
    assert stage.status.pods == {"pg-0": ("Unschedulable", message), "pg-1": ("Unschedulable", message)}
    assert stage.status.groups == {"pg": (False, "Unschedulable", message)}


def test_extra_pods_say_that_the_minimum_is_placed() -> None:
    """The group has what it needs, and they stay pending."""
    stage = Stage(node("n1", cpu=2), *gang("pg", size=3))
    stage.settle()
    assert stage.status.groups == {"pg": (True, "", "")}
    message = "the minimum of PodGroup default/pg is placed, there is no room for more: "
    assert stage.status.pods == {"pg-2": ("Unschedulable", message + FULL)}


def test_a_group_whose_minimum_runs_is_reported_without_a_bind() -> None:
    """An earlier leader bound its members and did not report it; an extra pod is pending."""
    stage = Stage(node("n1", cpu=2), *gang("pg", size=3))
    stage.settle()
    stage.status.groups.clear()
    stage.put(pod("extra", group="pg", cpu=1))
    stage.settle()
    assert stage.status.groups == {"pg": (True, "", "")}


def test_a_child_group_that_was_left_out_says_why() -> None:
    """The tree is placed without it."""
    stage = Stage(node("n1", cpu=2), composite("root", gang=1))
    for name, cpu in (("one", 1), ("two", 9)):
        stage.put(pod_group(name, gang=2, parent="root"))
        stage.put(*(pod(f"{name}-{number}", group=name, cpu=cpu) for number in range(2)))
    stage.settle()
    assert {name: placed for name, (placed, _, _) in stage.status.groups.items()} == {
        "root": True,
        "one": True,
        "two": False,
    }
    assert sorted(stage.status.pods) == ["two-0", "two-1"]


def test_members_in_different_domains_are_an_error() -> None:
    """No pod can be placed beside them."""
    stage = Stage(pod_group("pg", gang=3, key="rack"), pod("p", group="pg"))
    for name in "ab":
        stage.put(node(name, labels={"rack": name}), pod(f"runs-{name}", group="pg", node_name=name))
    stage.settle()
    assert stage.status.pods["p"][0] == stage.status.groups["pg"][1] == "SchedulerError"


def test_an_invalid_pod_gets_its_own_message() -> None:
    """The others of its gang are placed, if they are enough."""
    stage = Stage(node("n1"), *gang("pg", size=2), pod("bad", cpu="much", group="pg"))
    stage.settle()
    assert sorted(stage.bound()) == ["pg-0", "pg-1"]
    assert stage.status.pods["bad"][1].startswith("invalid pod: spec.containers[0]")


def test_gated_pods_keep_the_condition_of_the_api_server() -> None:
    """It has the reason SchedulingGated; the other pods of the tree say that they wait for gates."""
    gated = pod("gated", group="pg", scheduling_gates=(SchedulingGate(name="wait"),))
    stage = Stage(node("n1"), *gang("pg"), gated, replace(gated, metadata=metadata("alone")))
    stage.settle()
    message = "waiting for scheduling gates in its tree to be removed"
    assert stage.status.pods == dict.fromkeys(("pg-0", "pg-1"), ("WaitingForGroup", message))
    group_message = "waiting for the scheduling gates of Pod default/gated to be removed"
    assert stage.status.groups == {"pg": (False, "WaitingForGroup", group_message)}


def test_gates_that_are_removed_one_by_one_do_not_change_the_conditions_of_pods() -> None:
    """Each pod gets one condition, and the group one cause with the present number of gates."""
    gated = [pod(f"p{number}", group="pg", scheduling_gates=(SchedulingGate(name="g"),)) for number in range(30)]
    stage = Stage(node("n1", cpu=40), pod_group("pg", gang=30), *gated)
    stage.settle()
    for found in gated[:29]:
        stage.put(replace(stage.pod(found.metadata.name), spec=replace(found.spec, scheduling_gates=())))
        stage.settle()
    assert (stage.status.count, len(stage.status.causes["pg"])) == (29 + 30, 1)


def test_the_number_of_invalid_pods_is_not_in_the_conditions_of_pods() -> None:
    """The group says how many there are, with one cause."""
    stage = Stage(node("n1"), *gang("pg"))
    for number in range(9):
        stage.put(pod(f"x{number}", group="pg", priority=7))
        stage.settle()
    assert stage.status.groups["pg"][2].endswith("(and 8 more problems)")
    assert stage.status.causes["pg"] == {"PriorityDiverges"}
    assert len({message for _, message in stage.status.pods.values()}) == 1
    assert stage.status.count == len(stage.status.pods) + 9


@pytest.mark.parametrize("wrong", [{"priority": 7}, {"preemption_policy": "Never"}])
def test_pods_that_differ_are_an_error_on_their_groups_and_on_all_pods(wrong: dict[str, Any]) -> None:
    """None is scheduled, and each says in what they differ."""
    stage = Stage(node("n1"), *gang("pg"), pod("odd", group="pg", **wrong))
    stage.settle()
    assert {found for found, _ in stage.status.pods.values()} == {"SchedulerError"}
    assert stage.status.groups["pg"][:2] == (False, "SchedulerError")
    assert stage.bound() == {}


def test_an_invalid_tree_is_reported_on_its_groups_and_pods() -> None:
    """No node would help its pods."""
    stage = Stage(node("n1"), composite("root", priority=1), pod_group("pg", parent="root"), pod("p", group="pg"))
    stage.settle()
    assert stage.status.pods["p"][0] == "Invalid"
    assert {name: found[1] for name, found in stage.status.groups.items()} == {"root": "Invalid", "pg": "Invalid"}


def test_units_are_attempted_by_priority_then_age() -> None:
    """Of three units there is room for one, which outranks the others."""
    stage = Stage(node("n1", cpu=2), *gang("old", created="2025"), *gang("new", created="2026"))
    stage.put(pod("vip", cpu=2, priority=9, meta=metadata("vip", created="2027")))
    stage.settle()
    assert [unit for unit, _ in logged_attempts(stage)] == ["Pod default/vip", "PodGroup default/old"]
    assert sorted(stage.status.pods) == ["new-0", "new-1", "old-0", "old-1"]


@pytest.mark.parametrize("parent", [None, "root"], ids=["gang", "tree"])
def test_a_gang_that_arrives_pod_by_pod_has_one_cause(parent: str | None) -> None:
    """However many members there are, and at every level."""
    stage = Stage(node("n1", cpu=40), pod_group("pg", gang=30, parent=parent))
    if parent is not None:
        stage.put(composite(parent, gang=2), pod_group("other", gang=2, parent=parent), pod("o", group="other"))
    for number in range(29):
        stage.put(pod(f"p{number}", group="pg"))
        stage.settle()
    names = {"pg", "p0"} | ({"root", "o"} if parent else set())
    assert {name: len(stage.status.causes[name]) for name in names} == dict.fromkeys(names, 1)


def test_more_nodes_without_room_do_not_change_the_cause() -> None:
    """A node that is rejected for another reason does."""
    stage = Stage(node("n0", cpu=1), *gang("pg", cpu=9), pod("big", cpu=9))
    for number in range(1, 9):
        stage.put(node(f"n{number}", cpu=1), pod("big", cpu=9 + number))
        stage.settle(60)
    causes_by_name = stage.status.causes
    names = "pg", "pg-0", "pg-1", "big"
    assert {name: len(causes) for name, causes in causes_by_name.items()} == dict.fromkeys(names, 1)
    stage.put(node("off", cpu=20, unschedulable=True), pod("big", cpu=8))
    stage.settle(60)
    assert len(causes_by_name["big"]) == 2


def test_a_unit_is_not_attempted_because_of_its_own_conditions() -> None:
    """The watch shows the condition as a change of the pod."""
    stage = Stage(node("n1", cpu=1), *gang("pg"))
    stage.settle()
    written = stage.status.count
    for _ in range(4):
        stage.settle(60)
    assert (len(logged_attempts(stage)), stage.status.count) == (1, written)


def test_a_defect_in_one_unit_does_not_stop_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The unit says so, takes no room, and is attempted again when something has changed."""
    stage = Stage(node("n1"), pod("bad"), pod("good"))
    broken = stage.pod("bad").metadata.uid

    def decide(snapshot: Any, unit: Any, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 - it passes everything on
        if unit.nodes[0].pending[0].uid == broken:
            raise ZeroDivisionError("defect")
        return engine_cycle.decide(snapshot, unit, *rest, **named)

    monkeypatch.setattr("cpg_scheduler.cycle.decide", decide)
    stage.settle()
    assert stage.bound() == {"good": "n1"}
    assert b"cpg_scheduler_mistakes_total 1.0" in stage.metrics.page("").body
    assert stage.status.pods["bad"] == (
        "SchedulerError",
        "internal error of the scheduler: ZeroDivisionError('defect')",
    )
    monkeypatch.undo()
    stage.put(node("n2", cpu=1))
    stage.settle(60)
    assert "bad" in stage.bound()


def test_groups_of_two_flavours_are_units_of_their_own() -> None:
    """Each flavour has its own store."""
    stage = Stage(node("n1"), *gang("pg"))
    other = pod_group("other", gang=1, meta=ObjectMeta(name="other", namespace="default", uid="native"))
    stage.put(other, flavour="native")
    stage.put(pod("o", group="other"))
    stage.settle()
    assert sorted(stage.bound()) == ["o", "pg-0", "pg-1"]
