"""How many volumes a node attaches."""

import pytest

from cpg_api.core.volumes import PodVolume
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters.node_volume_limits import REASON, NodeVolumeLimits, NodeVolumeLimitsState
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import DRIVER, claim, csi_node, inline, stock, storage_class, using, volume


@pytest.fixture
def ledger() -> Ledger:
    """Return nodes that attach one volume, two, and as many as there are, and five claims bound to volumes."""
    ledger = Ledger()
    for name in ("n1", "n2", "n3"):
        ledger.put_node(node(name))
    stock(ledger.storage, csi_node("n1", limit=1), csi_node("n2", limit=2), csi_node("n3"))
    for name in "abcde":
        stock(ledger.storage, claim(name, bound_to=f"v-{name}"), volume(f"v-{name}", handle=f"h-{name}"))
    return ledger


def state_of(ledger: Ledger, volumes: tuple[PodVolume, ...] | None) -> NodeVolumeLimitsState | None:
    """Return the state of a pod with these volumes."""
    return NodeVolumeLimits(ledger).pre_filter(ledger.class_of(pod("p", volumes=volumes)))


def passes(ledger: Ledger, *volumes: PodVolume) -> list[bool]:
    """Return on which nodes a pod with these volumes may run."""
    state = state_of(ledger, volumes)
    assert state is not None
    rows = ledger.cluster.everything()
    assert [(reason, flags.tolist()) for reason, flags in state.checks(rows)] == [(REASON, state.passes(rows).tolist())]
    assert state.score(rows) is None
    return [bool(flag) for flag in state.passes(rows)]


@pytest.mark.parametrize(
    ("volumes", "expected"),
    [
        (using("a"), [True, True, True]),
        (using("a", "a"), [True, True, True]),
        (using("a", "b"), [False, True, True]),
        (using("a", "b", "c"), [False, False, True]),
        (inline(DRIVER), [True, True, True]),
        ((*using("a"), *inline(DRIVER, "other")), [False, True, True]),
        (inline(DRIVER, DRIVER, DRIVER), [False, False, True]),
    ],
)
def test_an_empty_node_attaches_up_to_its_limit(
    ledger: Ledger, volumes: tuple[PodVolume, ...], expected: list[bool]
) -> None:
    """Where that is not enough, evictions do not help either."""
    assert passes(ledger, *volumes) == expected
    state = state_of(ledger, volumes)
    assert state is not None
    assert state.could_ever_pass(ledger.cluster.everything()).tolist() == expected


def test_attached_volumes_use_up_the_limit(ledger: Ledger) -> None:
    """A volume that is attached already costs nothing, even on a node beyond its limit."""
    ledger.put_pod(pod("x", volumes=using("a")), "n1")
    ledger.put_pod(pod("y", volumes=using("a", "b", "c")), "n2")
    assert passes(ledger, *using("a")) == [True, True, True]
    assert passes(ledger, *using("d")) == [False, False, True]
    assert passes(ledger, *using("a", "d")) == [False, False, True]
    assert passes(ledger, *inline(DRIVER)) == [False, False, True]
    state = state_of(ledger, using("d"))
    assert state is not None
    assert state.could_ever_pass(ledger.cluster.everything()).all()


def test_volumes_to_be_provisioned_count(ledger: Ledger) -> None:
    """They belong to the driver that provisions them; pods that share one share it here, too."""
    stock(ledger.storage, storage_class(provisioner=DRIVER), claim("new"), claim("newer"))
    assert passes(ledger, *using("new")) == [True, True, True]
    ledger.place(ledger.class_of(pod("x", volumes=using("new"))), ledger.cluster.everything()[:1])
    assert passes(ledger, *using("new")) == [True, True, True]
    assert passes(ledger, *using("newer")) == [False, True, True]


def test_each_driver_has_its_own_limit(ledger: Ledger) -> None:
    """A pod needs room with each driver of its volumes."""
    stock(ledger.storage, storage_class(provisioner="other"), claim("new"), csi_node("n4", driver="other", limit=0))
    ledger.put_node(node("n4"))
    assert passes(ledger, *using("new")) == [True, True, True, False]
    assert passes(ledger, *using("a", "new")) == [True, True, True, False]
    assert passes(ledger, *using("a", "b", "new")) == [False, True, True, False]


def test_a_running_pod_passes_where_it_would_pass_as_new(ledger: Ledger) -> None:
    """Its own volumes count once; a volume shared with other pods costs nothing."""
    rows = ledger.cluster.everything()
    kind = ledger.class_of(pod("p", volumes=using("a")))
    ledger.place(kind, rows[:2])
    state = state_of(ledger, using("a"))
    assert state is not None
    assert state.still_passes(rows[:2]).tolist() == [True, True]
    ledger.put_pod(pod("x", volumes=using("b")), "n1")
    ledger.put_pod(pod("y", volumes=using("b")), "n2")
    assert state.still_passes(rows[:2]).tolist() == [False, True]
    ledger.put_pod(pod("z", volumes=using("a", "c")), "n1")
    assert state.still_passes(rows[:1]).tolist() == [True]
    both = state_of(ledger, (*using("a"), *inline(DRIVER)))
    assert both is not None
    assert both.still_passes(rows[:1]).tolist() == [False]


def test_other_drivers_do_not_matter(ledger: Ledger) -> None:
    """Volumes of drivers without a limit, or with a larger one, are counted separately."""
    stock(ledger.storage, storage_class(provisioner="other"), claim("new"), csi_node("n4", driver="other", limit=1))
    ledger.put_node(node("n4"))
    kind = ledger.class_of(pod("p", volumes=using("a", "new")))
    ledger.place(kind, ledger.cluster.everything()[:1])
    state = state_of(ledger, using("a", "new"))
    assert state is not None
    assert state.still_passes(ledger.cluster.everything()[:1]).tolist() == [True]


@pytest.mark.parametrize("limit", [0, -5])
def test_a_node_that_attaches_nothing(ledger: Ledger, limit: int) -> None:
    """With a limit of zero or less, no volume passes."""
    stock(ledger.storage, csi_node("n1", limit=limit))
    assert passes(ledger, *using("a"))[0] is False


def test_classes_without_state(ledger: Ledger) -> None:
    """Pods without volumes, with volumes of drivers without limits, or with claims that cannot be used."""
    stock(ledger.storage, claim("plain", bound_to="v-plain"), volume("v-plain"))
    others = (None, using("plain"), inline("other"), using("gone"))
    assert [state_of(ledger, volumes) for volumes in others] == [None] * 4
