"""One more look before the first bind: what speaks against it, and what does not."""

from collections.abc import Callable

import pytest

from cpg_api.core.node import Taint
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storing import claim, using, volume
from cpg_scheduler.caches.nominations import Nominated
from cpg_scheduler.rechecking import objection
from cpg_scheduler.testing.stage import Stage


def decided() -> Stage:
    """Return two nodes, with two pods assumed on the first and one on the second; one has a claim that is bound."""
    stage = Stage(node("n1", cpu=2), node("n2", cpu=2), claim("x", bound_to="pv"), volume("pv"))
    stage.put(pod("a", cpu=1), pod("b", cpu=1), pod("c", cpu=1, volumes=using("x")))
    for name, where in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        stage.state.assume(f"uid-default-{name}", where)
    return stage


def look(stage: Stage) -> str:
    """Look at the decision once more; the ledger stays as it is."""
    ledger = stage.state.world.ledger
    before = ledger.used.tolist()
    found = objection(
        stage.state, {f"uid-default-{name}": node for name, node in zip("abc", ("n1", "n1", "n2"), strict=True)}
    )
    assert ledger.used.tolist() == before
    return found


TAINT = Taint(key="bad", effect="NoSchedule")


@pytest.mark.parametrize(
    ("happens", "expected"),
    [
        (lambda stage: stage.delete(stage.pod("b")), "one of its pods is gone, or about to go"),
        (lambda stage: stage.delete(node("n1")), "node n1 is gone"),
        (lambda stage: stage.put(node("n1", cpu=1)), "node n1 has become too small or too full"),
        (lambda stage: stage.put(pod("z", cpu=2, node_name="n2")), "node n2 has become too small or too full"),
        (lambda stage: stage.put(node("n2", cpu=2, unschedulable=True)), "node n2 takes no such pods any more"),
        (lambda stage: stage.put(node("n1", cpu=2, taints=(TAINT,))), "node n1 takes no such pods any more"),
        (
            lambda stage: stage.put(volume("pv", at={"zone": ["far"]})),
            "node(s) didn't match PersistentVolume's node affinity",
        ),
    ],
    ids=["pod gone", "node gone", "shrunk", "filled by others", "cordoned", "tainted", "volume elsewhere"],
)
def test_what_has_arrived_may_speak_against_a_bind(happens: Callable[[Stage], None], expected: str) -> None:
    """It is named, so that the log says why an order was given back."""
    stage = decided()
    happens(stage)
    assert look(stage) == expected


@pytest.mark.parametrize(
    "happens",
    [
        lambda _: None,
        lambda stage: stage.put(pod("z", cpu=1, node_name="n2")),
        lambda stage: stage.put(node("n3", unschedulable=True)),
        lambda stage: stage.put(node("n1", cpu=2, memory="1Gi"), pod("z", memory="2Gi", node_name="n1")),
    ],
    ids=["nothing", "a pod beside", "another node", "overdrawn of what nobody here asks for"],
)
def test_what_concerns_others_does_not(happens: Callable[[Stage], None]) -> None:
    """A busy cluster must not keep anybody from being bound."""
    stage = decided()
    happens(stage)
    assert look(stage) == ""


def test_room_that_is_kept_for_others_is_not_taken() -> None:
    """Who was decided about has passed them by, and would be decided about the same way for ever."""
    stage = decided()
    waiting = pod("z", cpu=2)
    stage.put(waiting)
    root = stage.state.root_of(stage.pod("z"))
    stage.state.nominations.put(waiting, Nominated("n1", root, 0))
    assert look(stage) == ""
