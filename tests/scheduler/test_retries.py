"""When a unit that was not placed is attempted again."""

import itertools
from typing import Any

import pytest

from cpg_engine import cycle as engine_cycle
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler.testing.gangs import gang, logged_attempts
from cpg_scheduler.testing.stage import Stage


def arrived(stage: Stage, seconds: float = 0.2) -> float:
    """Let the pods of a gang arrive one by one without room; return the time of the last arrival."""
    group, *pods = gang("pg", size=6, minimum=2, cpu=1)
    stage.put(group)
    for found in pods:
        stage.put(found)
        stage.settle(seconds)
    return stage.now


@pytest.mark.parametrize("running", [False, True])
def test_the_arrival_of_members_does_not_grow_the_backoff(*, running: bool) -> None:
    """The gang is placed as soon as there is a node, also if other members of it run already."""
    stage = Stage(node("n1", cpu=1), pod("old", cpu=1, group="pg" if running else None, node_name="n1"))
    arrived(stage)
    stage.put(node("n2", cpu=9))
    stage.settle()
    assert len(stage.bound()) == 7


def test_the_arrival_of_groups_does_not_grow_the_backoff() -> None:
    """Nor that of their root: a tree that is not complete has not failed."""
    stage = Stage(node("n1", cpu=1))
    for number in range(6):
        stage.put(pod_group(f"pg{number}", parent="root"), pod(f"p{number}", cpu=2, group=f"pg{number}"))
        stage.settle(0.2)
    stage.put(composite("root", gang=6))
    stage.settle()
    (waiting,) = stage.queue.positions()
    assert (waiting.attempts, len(logged_attempts(stage))) == (1, 1)


def test_a_unit_that_changes_without_growing_backs_off_for_longer_each_time() -> None:
    """Otherwise a user could skip the backoff."""
    stage = Stage(node("n1", cpu=1), pod("old", cpu=1, group="pg", node_name="n1"), *gang("pg", cpu=2))
    for number in range(5):
        stage.put(pod_group("pg", gang=2 + number % 2))
        stage.settle()
    assert [found.attempts for found in stage.queue.positions()] == [5]


def hopeless(stage: Stage, nodes: int = 6) -> None:
    """Let a gang of four fail, and again at each node that does not help enough."""
    stage.put(*gang("pg", size=4, minimum=4, cpu=2))
    stage.settle()
    for number in range(nodes):
        stage.put(node(f"small{number}", cpu=2 if number < 3 else 1))
        stage.settle(30)


def test_an_event_that_makes_room_ends_the_backoff() -> None:
    """Room for the whole gang appears after many failures, the last of them just before."""
    stage = Stage(node("n0", cpu=1))
    hopeless(stage)
    assert stage.bound() == {}
    stage.put(node("large", cpu=2))
    stage.settle()
    assert len(stage.bound()) == 4


def test_an_event_that_makes_too_little_room_does_not_end_the_backoff() -> None:
    """The unit is not attempted before its backoff ends."""
    stage = Stage(node("n0", cpu=1), *gang("pg", size=4, minimum=4, cpu=2))
    stage.settle()
    for number in range(2):
        stage.put(node(f"n{number + 1}", cpu=2))
        stage.settle(0.1)
    assert len(logged_attempts(stage)) == 1
    stage.settle(10)
    assert len(logged_attempts(stage)) == 2


def uneven() -> list[Any]:
    """Return nodes, and a gang that fits if each node gets pods of one size, which the search does not find."""
    large = [pod(f"large{number}", cpu=3, group="pg") for number in range(4)]
    small = [pod(f"small{number}", cpu=2, group="pg") for number in range(6)]
    return [*(node(f"n{number}", cpu=6) for number in range(4)), pod_group("pg", gang=10), *large, *small]


def test_the_backoff_does_not_end_for_a_unit_that_had_room_by_the_bounds() -> None:
    """Its search has failed, and each event would cost another one."""
    stage = Stage(*uneven())
    stage.settle()
    for number in range(5):
        stage.put(node(f"tiny{number}", cpu=1))
        stage.settle(0.1)
    assert len(logged_attempts(stage)) == 1


def test_a_search_that_proves_nothing_is_repeated_without_an_event() -> None:
    """After a time that doubles with each failure; hints are not to blame if it succeeds."""
    stage = Stage(*uneven())
    times: list[float] = []
    for _ in range(40):
        before = len(logged_attempts(stage))
        stage.settle(1.0)
        times += [stage.now] * (len(logged_attempts(stage)) - before)
    assert [late - early for early, late in itertools.pairwise(times)] == [2.0, 4.0, 8.0, 16.0]
    assert {finding for _, finding in logged_attempts(stage)} == {"NotFound"}
    assert stage.queue.missed_hints == 0


def test_a_proof_is_not_repeated_without_an_event() -> None:
    """Nothing has changed."""
    stage = Stage(node("n1", cpu=1), *gang("pg", cpu=2))
    for _ in range(40):
        stage.settle(1.0)
    assert len(logged_attempts(stage)) == 1


def test_a_unit_rests_after_an_expensive_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """It changes before every attempt, and others of another namespace are placed meanwhile."""
    stage = Stage(node("n1", cpu=9), *gang("pg", cpu=99))
    expensive = stage.pod("pg-0").metadata.uid

    def decide(snapshot: Any, unit: Any, *rest: Any, **named: Any) -> Any:  # noqa: ANN401 - it passes everything on
        pending = {pod.uid for found in unit.nodes for pod in found.pending}
        stage.now += 1.0 if expensive in pending else 0.0
        return engine_cycle.decide(snapshot, unit, *rest, **named)

    monkeypatch.setattr("cpg_scheduler.cycle.decide", decide)
    for number in range(10):
        stage.put(pod_group("pg", gang=2 + number % 2), pod(f"p{number}", cpu=0.1))
        stage.settle(1.0)
    assert len([name for name, _ in logged_attempts(stage) if name.endswith("/pg")]) == 1
    assert len(stage.bound()) == 10
    stage.settle(20.0)
    assert len([name for name, _ in logged_attempts(stage) if name.endswith("/pg")]) == 2
