"""The driver: news in, one root after the other, decisions out."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import SchedulingGate
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_engine import cycle as engine_cycle
from cpg_engine.decisions import VolumeAllocation
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group
from cpg_engine.testing.storage_builders import claim, storage_class, using, volume
from cpg_scheduler import cycle as scheduling_cycle
from cpg_scheduler.binding.batch import BindDelayed, BindFailed, BindFailure, PreBindPending
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.testing.stage import DENIED, Stage

NO_VICTIMS = "pod group preemption: No preemption victims found for incoming preemptor"
FULL = "0/1 nodes are available: 1 Insufficient cpu"


def attempts(stage: Stage) -> list[tuple[str, str]]:
    """Return the attempts that the log tells of: whose, and how they ended."""
    calls = [call.kwargs for call in stage.log.calls if call.kwargs.get("event") == "attempt"]
    return [(call["root"], call["finding"]) for call in calls]


def gang(name: str, *, size: int = 2, minimum: int = 2, cpu: int = 1, created: str = "2026") -> list[Any]:
    """Return a group and its pods."""
    named = [metadata(f"{name}-{number}", created=created, **{POD_GROUP_LABEL: name}) for number in range(size)]
    pods = [pod(meta.name, cpu=cpu, meta=meta) for meta in named]
    return [pod_group(name, gang=minimum, meta=metadata(name, created=created)), *pods]


def test_a_gang_is_placed_and_told_so_when_it_is_bound() -> None:
    """Not before: a bind may fail."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    assert (len(stage.binder.batches), stage.status.groups) == (1, {})
    stage.complete_binds()
    assert stage.status.groups == {"pg": (True, "", "")}
    assert (stage.bound(), len(stage.queue)) == ({"pg-0": "n1", "pg-1": "n1"}, 0)


def test_every_pod_of_a_gang_that_failed_is_told() -> None:
    """Also those that would fit alone: autoscalers look at them."""
    stage = Stage(node("n1", cpu=1), *gang("pg"))
    stage.settle()
    said = f"minCount (2) cannot be satisfied: room for 1 of 2 pods; {FULL}; {NO_VICTIMS}"
    assert stage.status.pods == {"pg-0": ("Unschedulable", said), "pg-1": ("Unschedulable", said)}
    assert stage.status.groups == {"pg": (False, "Unschedulable", said)}


def test_extra_pods_are_told_that_the_minimum_is_placed() -> None:
    """The group has what it needs, and they go on waiting."""
    stage = Stage(node("n1", cpu=2), *gang("pg", size=3))
    stage.settle()
    assert stage.status.groups == {"pg": (True, "", "")}
    said = "the minimum of PodGroup default/pg is placed, there is no room for more: "
    assert stage.status.pods == {"pg-2": ("Unschedulable", said + FULL)}


def test_a_group_whose_members_run_is_told_so_though_nobody_is_bound() -> None:
    """An earlier leader bound them and died before it could say so; an extra pod waits."""
    stage = Stage(node("n1", cpu=2), *gang("pg", size=3))
    stage.settle()
    stage.status.groups.clear()
    stage.put(pod("extra", group="pg", cpu=1))
    stage.settle()
    assert stage.status.groups == {"pg": (True, "", "")}


def test_a_child_that_was_left_out_is_told_why() -> None:
    """C02: the tree is placed without it."""
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


def test_members_that_contradict_each_other_are_an_error() -> None:
    """E07: nobody can be placed beside them."""
    stage = Stage(pod_group("pg", gang=3, key="rack"), pod("p", group="pg"))
    for name in "ab":
        stage.put(node(name, labels={"rack": name}), pod(f"runs-{name}", group="pg", node_name=name))
    stage.settle()
    assert stage.status.pods["p"][0] == stage.status.groups["pg"][1] == "SchedulerError"


def test_a_pod_that_makes_no_sense_is_told_itself() -> None:
    """The others of its gang are placed, if they are enough."""
    stage = Stage(node("n1"), *gang("pg", size=2), pod("bad", cpu="much", group="pg"))
    stage.settle()
    assert sorted(stage.bound()) == ["pg-0", "pg-1"]
    assert stage.status.pods["bad"][1].startswith("invalid pod: spec.containers[0]")


def test_gated_pods_are_told_by_the_api_server() -> None:
    """It says SchedulingGated; all others of the tree say whom they wait for."""
    gated = pod("gated", group="pg", scheduling_gates=(SchedulingGate(name="wait"),))
    stage = Stage(node("n1"), *gang("pg"), gated, replace(gated, metadata=metadata("alone")))
    stage.settle()
    told = "waiting for scheduling gates in its tree to be removed"
    assert stage.status.pods == dict.fromkeys(("pg-0", "pg-1"), ("Unschedulable", told))
    said = "waiting for the scheduling gates of Pod default/gated to be removed"
    assert stage.status.groups == {"pg": (False, "Unschedulable", said)}


def test_gates_that_are_removed_one_by_one_are_not_counted_to_the_pods() -> None:
    """Each pod is told once, and the group how many are left, for the same cause."""
    gated = [pod(f"p{number}", group="pg", scheduling_gates=(SchedulingGate(name="g"),)) for number in range(30)]
    stage = Stage(node("n1", cpu=40), pod_group("pg", gang=30), *gated)
    stage.settle()
    for found in gated[:29]:
        stage.put(replace(stage.pod(found.metadata.name), spec=replace(found.spec, scheduling_gates=())))
        stage.settle()
    assert (stage.status.count, len(stage.status.causes["pg"])) == (29 + 30, 1)


def test_pods_that_make_a_tree_invalid_are_not_counted_to_the_others() -> None:
    """The group says how many there are, and there is one cause."""
    stage = Stage(node("n1"), *gang("pg"))
    for number in range(9):
        stage.put(pod(f"x{number}", group="pg", priority=7))
        stage.settle()
    assert stage.status.groups["pg"][2].endswith("(and 8 more problems)")
    assert stage.status.causes["pg"] == {"PriorityDiverges"}
    assert len({told for _, told in stage.status.pods.values()}) == 1
    assert stage.status.count == len(stage.status.pods) + 9


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [({"priority": 7}, "Unschedulable"), ({"preemption_policy": "Never"}, "SchedulerError")],
    ids=["invalid", "error"],
)
def test_an_invalid_tree_is_told_to_its_groups_and_its_pods(wrong: dict[str, Any], reason: str) -> None:
    """Pods know no reason Invalid."""
    stage = Stage(node("n1"), *gang("pg"), pod("odd", group="pg", **wrong))
    stage.settle()
    assert {said for said, _ in stage.status.pods.values()} == {reason}
    assert stage.status.groups["pg"][1] == ("Invalid" if reason == "Unschedulable" else reason)


def test_the_more_important_and_the_older_go_first() -> None:
    """Of three for whom there is room for one, it is the one that outranks the others."""
    stage = Stage(node("n1", cpu=2), *gang("old", created="2025"), *gang("new", created="2026"))
    stage.put(pod("vip", cpu=2, priority=9, meta=metadata("vip", created="2027")))
    stage.settle()
    assert [root for root, _ in attempts(stage)] == ["Pod default/vip", "PodGroup default/old"]
    assert sorted(stage.status.pods) == ["new-0", "new-1", "old-0", "old-1"]


@pytest.mark.parametrize("parent", [None, "root"], ids=["gang", "tree"])
def test_a_gang_that_arrives_member_by_member_has_one_cause_to_wait(parent: str | None) -> None:
    """However many members there are, and at every level."""
    stage = Stage(node("n1", cpu=40), pod_group("pg", gang=30, parent=parent))
    if parent is not None:
        stage.put(composite(parent, gang=2), pod_group("other", gang=2, parent=parent), pod("o", group="other"))
    for number in range(29):
        stage.put(pod(f"p{number}", group="pg"))
        stage.settle()
    names = {"pg", "p0"} | ({"root", "o"} if parent else set())
    assert {name: len(stage.status.causes[name]) for name in names} == dict.fromkeys(names, 1)


def test_nodes_that_come_and_go_are_no_other_cause() -> None:
    """The same is wrong with more of them; what else may be wrong is another one."""
    stage = Stage(node("n0", cpu=1), *gang("pg", cpu=9), pod("big", cpu=9))
    for number in range(1, 9):
        stage.put(node(f"n{number}", cpu=1), pod("big", cpu=9 + number))
        stage.settle(60)
    told = stage.status.causes
    assert {name: len(causes) for name, causes in told.items()} == dict.fromkeys(("pg", "pg-0", "pg-1", "big"), 1)
    stage.put(node("off", cpu=20, unschedulable=True), pod("big", cpu=8))
    stage.settle(60)
    assert len(told["big"]) == 2


# What fails.


def test_a_root_is_not_attempted_again_because_of_its_own_report() -> None:
    """The condition that was written comes back as news of the pod."""
    stage = Stage(node("n1", cpu=1), *gang("pg"))
    stage.settle()
    said = stage.status.count
    for _ in range(4):
        stage.settle(60)
    assert (len(attempts(stage)), stage.status.count) == (1, said)


def test_binds_that_always_fail_back_off() -> None:
    """A webhook that refuses a tree must not keep the scheduler busy with it."""
    stage = Stage(node("n1"), *gang("pg"))
    for _ in range(100):
        stage.now += 1.0
        stage.run_passes()
        stage.fail_binds()
    assert 5 < len(attempts(stage)) < 15
    assert stage.bound() == {}
    stage.settle(60)
    assert len(stage.bound()) == 2


def test_a_tree_that_was_bound_in_part_is_completed() -> None:
    """The rest goes beside what is there."""
    stage = Stage(*(node(f"{rack}{number}", cpu=1, labels={"rack": rack}) for rack in "ab" for number in range(2)))
    stage.put(pod_group("pg", gang=2, key="rack"), *(pod(f"p{number}", cpu=1, group="pg") for number in range(2)))
    stage.run_passes()
    batch = stage.binder.batches.pop()
    (works, where), (fails, _) = batch.nodes.items()
    bound = stage.pod(batch.pods[works].metadata.name)
    stage.put(replace(bound, spec=replace(bound.spec, node_name=where)))
    stage.cache.forget(fails)
    stage.end_batch(batch, BindFailed(batch, BindFailure(frozenset({fails}))))
    stage.settle(60)
    assert {name[0] for name in stage.bound().values()} == {where[0]}
    assert stage.status.groups["pg"][0]


def test_a_bind_is_in_flight_until_its_batch_ends() -> None:
    """It may still fail, so a condition about it may be true as long, and no longer."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    uid = stage.pod("pg-0").metadata.uid
    assert uid in stage.cache.binds_in_flight
    stage.fail_binds()
    assert uid not in stage.cache.binds_in_flight


SAID = "Pod default/p cannot be bound to node n1: denied"
REFUSED = (False, "SchedulerError", SAID)
PLACED = (True, "", "")


def test_a_gang_that_has_its_minimum_says_so_though_one_more_is_refused() -> None:
    """However often that is tried: an admission policy may have something against this one pod for ever."""
    stage = Stage(node("n1"), *gang("pg", size=3))
    for _ in range(3):
        stage.now += 60
        stage.run_passes()
        stage.complete_binds(refused={"pg-2"})
        assert stage.status.groups == {"pg": PLACED}
    assert stage.status.pods == {"pg-2": REFUSED[1:]}


@pytest.mark.parametrize(("minimum", "root"), [(1, PLACED), (2, REFUSED)])
def test_each_group_of_a_tree_is_told_of_the_binds_that_it_lacks(minimum: int, root: tuple[bool, str, str]) -> None:
    """Who has its minimum says so; who was left out for another reason has been told that one."""
    stage = Stage(node("n1"), composite("root", gang=minimum))
    for name, cpu in (("one", 1), ("two", 1), ("big", 99)):
        stage.put(pod_group(name, gang=2, parent="root"))
        stage.put(*(pod(f"{name}-{number}", group=name, cpu=cpu) for number in range(2)))
    stage.run_passes()
    big = stage.status.groups["big"]
    stage.complete_binds(refused={"two-1"})
    assert stage.status.groups == {"root": root, "one": PLACED, "two": REFUSED, "big": big}
    assert "room for 0 of 2 pods" in big[2]
    stage.settle(60)
    assert stage.status.groups == {"root": PLACED, "one": PLACED, "two": PLACED, "big": big}


def test_binds_that_are_under_way_make_no_minimum() -> None:
    """A member that came late is bound before the others, and these are refused."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    first = stage.binder.batches.pop()
    stage.put(pod("late", group="pg", cpu=1))
    stage.run_passes()
    stage.complete_binds()
    assert (stage.bound(), stage.status.groups) == ({"late": "n1"}, {})
    stage.binder.batches.append(first)
    stage.complete_binds(refused={"pg-0", "pg-1"})
    assert stage.status.groups == {"pg": REFUSED}
    stage.settle(60)
    assert stage.status.groups == {"pg": PLACED}


def test_a_pod_that_is_deleted_while_it_is_bound_leaves_nothing_behind() -> None:
    """Neither in the queue nor on the node."""
    stage = Stage(node("n1", cpu=1), pod("p", cpu=1))
    stage.run_passes()
    stage.delete(stage.pod("p"))
    stage.fail_binds()
    stage.settle(60)
    assert len(stage.queue) == 0
    stage.put(pod("q", cpu=1))
    stage.settle()
    assert stage.bound() == {"q": "n1"}


def test_a_member_that_comes_while_its_gang_is_bound_is_placed_with_it() -> None:
    """The end of the binds does not make it forgotten."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    stage.put(pod("late", group="pg", cpu=1))
    stage.loop._requeuer.take_events(stage.now)
    stage.complete_binds()
    stage.settle()
    assert sorted(stage.bound()) == ["late", "pg-0", "pg-1"]


def test_a_mistake_of_ours_about_one_root_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, keeps no room, and is tried again when something has changed."""
    stage = Stage(node("n1"), pod("bad"), pod("good"))
    broken = stage.pod("bad").metadata.uid

    def decide(snapshot: Any, unit: Any, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 - it only hands through
        if unit.nodes[0].pending[0].uid == broken:
            raise ZeroDivisionError("by whom?")
        return engine_cycle.decide(snapshot, unit, *rest, **named)

    monkeypatch.setattr("cpg_scheduler.cycle.decide", decide)
    stage.settle()
    assert stage.bound() == {"good": "n1"}
    assert b"cpg_scheduler_mistakes_total 1.0" in stage.metrics.page("").body
    assert stage.status.pods["bad"] == (
        "SchedulerError",
        "internal error of the scheduler: ZeroDivisionError('by whom?')",
    )
    monkeypatch.undo()
    stage.put(node("n2", cpu=1))
    stage.settle(60)
    assert "bad" in stage.bound()


# Roots that are alike.


def crowd(number: int) -> Stage:
    """Return a full cluster with a crowd of pods that want more than any node has, older than all others."""
    stage = Stage(*(node(f"n{place}", cpu=2) for place in range(4)))
    stage.put(*(pod(f"runs{place}", cpu=2, node_name=f"n{place}") for place in range(4)))
    stage.put(*(pod(f"big{place}", cpu=9, meta=metadata(f"big{place}", created="2020")) for place in range(number)))
    stage.settle()
    return stage


def test_a_crowd_that_is_alike_costs_one_attempt() -> None:
    """Everybody is told all the same."""
    stage = crowd(500)
    assert len(attempts(stage)) == 1
    assert len({stage.status.pods[f"big{place}"] for place in range(500)}) == 1


def test_a_crowd_that_cannot_be_placed_delays_nobody() -> None:
    """Whatever happens that makes room: who fits is attempted, and of the crowd nobody as long as none could fit."""
    stage = crowd(500)
    before = len(attempts(stage))
    stage.now += 60
    for place in range(4):
        stage.delete(stage.pod(f"runs{place}"))
    stage.put(*gang("pg", cpu=2))
    stage.run_passes()
    assert attempts(stage)[before:] == [("PodGroup default/pg", "Placed")]


def test_a_crowd_is_placed_one_by_one_when_there_is_room() -> None:
    """As many as fit, the oldest first; then there is no hope left for the others."""
    stage = crowd(50)
    before = len(attempts(stage))
    stage.put(node("huge", cpu=27))
    stage.settle(60)
    assert [name for name in sorted(stage.bound()) if name.startswith("big")] == ["big0", "big1", "big10"]
    assert len(attempts(stage)) - before == 3


def test_gangs_that_are_alike_share_what_was_found() -> None:
    """By their own names."""
    stage = Stage(node("n1", cpu=1), *gang("one"), *gang("two"))
    stage.settle()
    assert len(attempts(stage)) == 1
    assert stage.status.groups["one"] == stage.status.groups["two"]
    assert {"one-0", "one-1", "two-0", "two-1"} == stage.status.pods.keys()


def test_a_crowd_is_told_anew_when_the_cause_is_another() -> None:
    """Once; and not because there is one node more."""
    stage = crowd(5)
    told = stage.status.count
    stage.put(node("n9", cpu=3))
    stage.settle(60)
    assert stage.status.count == told
    stage.put(node("huge", cpu=9, labels={"gpu": "no"}), pod("guest", cpu=9, priority=1, node_selector={"gpu": "no"}))
    stage.settle(60)
    assert stage.bound()["guest"] == "huge"
    assert stage.status.count <= told + 5


def test_who_was_to_be_told_and_is_gated_by_now_is_left_alone() -> None:
    """What was found for others is not about it any more."""
    stage = crowd(1)
    stage.put(pod("big9", cpu=9))
    stage.loop._requeuer.take_events(stage.now)
    root = stage.queue.pop(stage.now)
    assert root is not None
    stage.loop._schedule(root)
    gated = pod("big9", cpu=9, scheduling_gates=(SchedulingGate(name="wait"),))
    stage.cache._pods.replace(None, gated)
    assert stage.loop._report_shared()
    assert "big9" not in stage.status.pods


# The loop.


async def test_the_driver_sleeps_until_there_is_news() -> None:
    """Then it runs until nobody is left to attempt."""
    stage = Stage(node("n1"))
    running = asyncio.create_task(stage.loop.run())
    await asyncio.sleep(0)
    stage.put(pod("p"))
    await asyncio.sleep(0)
    assert stage.binder.batches == []
    stage.inbox.wake()
    await until(lambda: bool(stage.binder.batches))
    await end(running)


async def test_news_that_help_nobody_are_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """While thousands of pods leave, not each of them has a cycle; what is to be attempted waits no longer."""
    monkeypatch.setattr(scheduling_cycle, "GATHERING_SECONDS", 0.2)
    stage = Stage(node("n1"))
    cycles: list[bool] = []
    cycle = stage.loop.run_pass

    def counted() -> bool:
        cycles.append(cycle())
        return cycles[-1]

    monkeypatch.setattr(stage.loop, "run_pass", counted)
    running = asyncio.create_task(stage.loop.run())
    await until(lambda: len(cycles) == 1)
    for number in range(20):
        stage.put(pod(f"theirs{number}", node_name="n1"))
        stage.inbox.wake()
        await asyncio.sleep(0)
    assert cycles == [False]
    stage.put(pod("p"))
    await until(lambda: bool(stage.binder.batches))
    assert cycles.count(False) <= 2
    await end(running)


async def test_a_sleep_lasts_no_longer_than_the_first_backoff() -> None:
    """Whoever waits is attempted in time."""
    stage = Stage(node("n1", cpu=1), pod("p", cpu=2))
    stage.run_passes()
    stage.put(node("n1", cpu=2))
    stage.run_passes()
    stage.now = 1.24
    await stage.loop._sleep()
    stage.now = 1.3
    assert stage.run_passes() == 1
    assert len(stage.binder.batches) == 1


async def test_long_work_lets_others_have_their_turn() -> None:
    """The watches and the binds share the loop with the driver."""
    stage = Stage(node("n1"), *(pod(f"p{number}") for number in range(20)))
    ticks = iter(range(10**6))
    stage.loop._clock = lambda: float(next(ticks))
    running = asyncio.create_task(stage.loop.run())
    await asyncio.sleep(0)
    assert 0 < len(stage.binder.batches) < 20
    await until(lambda: len(stage.binder.batches) == 20)
    await end(running)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)


async def end(task: asyncio.Task[None]) -> None:
    """End a task."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_namesake_of_another_flavour_has_its_own_root() -> None:
    """The state tells them apart by where they came from."""
    stage = Stage(node("n1"), *gang("pg"))
    other = pod_group("other", gang=1, meta=ObjectMeta(name="other", namespace="default", uid="native"))
    stage.put(other, flavour="native")
    stage.put(pod("o", group="other"))
    stage.settle()
    assert isinstance(stage.cache, ClusterCache)
    assert sorted(stage.bound()) == ["o", "pg-0", "pg-1"]


def test_a_pod_whose_claim_is_missing_says_so_and_goes_when_it_comes() -> None:
    """Without waiting for any backoff."""
    stage = Stage(node("n1"), storage_class(), volume("pv"), pod("p", volumes=using("x")))
    stage.settle()
    assert 'persistentvolumeclaim "x" not found' in stage.status.pods["p"][1]
    stage.put(claim("x"))
    stage.run_passes()
    (batch,) = stage.binder.batches
    allocation = VolumeAllocation("default/x", "pv", "n1")
    assert batch.allocations == {"uid-default-p": (allocation,)}
    assert stage.cache.snapshot.ledger.volume_allocator.allocated == {"default/x": allocation}


def test_what_stands_in_the_way_of_a_bind_is_told() -> None:
    """Of the pods concerned, by its own reason, and of the groups, by one that the API knows."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    (batch,) = stage.binder.batches
    pending = PreBindPending("volumes", ("claim x",))
    stage.report(BindDelayed(batch, BindFailure(frozenset(batch.nodes), pending)))
    said = "waiting for claim x to be bound"
    assert stage.status.pods == dict.fromkeys(("pg-0", "pg-1"), ("WaitingForVolumes", said))
    assert stage.status.groups == {"pg": (False, "Unschedulable", said)}
    stage.fail_binds(DENIED)
    assert stage.status.pods["pg-0"] == REFUSED[1:]
    assert stage.status.groups == {"pg": REFUSED}


def test_an_order_that_was_outdated_is_attempted_again_at_once() -> None:
    """Nobody is to blame, so nobody backs off or is told anything."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    stage.put(node("n1", unschedulable=True), node("n2"))
    stage.fail_binds(is_outdated=True)
    assert stage.status.pods == {}
    stage.settle()
    assert stage.bound() == {"pg-0": "n2", "pg-1": "n2"}
