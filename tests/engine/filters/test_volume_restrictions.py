"""Claims that only one pod may use."""

import pytest

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters.volume_restrictions import REASON, VolumeRestrictions
from cpg_engine.testing.builders import node, pod
from cpg_engine.testing.storage_builders import claim, stock, storage_class, using

ALONE = ("ReadWriteOncePod",)


@pytest.fixture
def ledger() -> Ledger:
    """Return two nodes, two exclusive claims, and one that pods may share."""
    ledger = Ledger()
    ledger.put_node(node("n1"))
    ledger.put_node(node("n2"))
    stock(ledger.storage, storage_class(provisioner="driver"), claim("a", modes=ALONE), claim("b", modes=ALONE))
    stock(ledger.storage, claim("shared"))
    return ledger


def passes(ledger: Ledger, *claims: str) -> list[bool]:
    """Return on which nodes a pod that uses these claims may run."""
    state = VolumeRestrictions(ledger).pre_filter(ledger.class_of(pod("p", volumes=using(*claims))))
    assert state is not None
    rows = ledger.cluster.everything()
    assert [(reason, flags.tolist()) for reason, flags in state.checks(rows)] == [(REASON, state.passes(rows).tolist())]
    assert state.could_ever_pass(rows).all()
    assert state.score(rows) is None
    return [bool(flag) for flag in state.passes(rows)]


def test_a_second_pod_finds_no_node(ledger: Ledger) -> None:
    """Neither beside the first nor elsewhere, until the first is gone."""
    assert passes(ledger, "a") == [True, True]
    ledger.put_pod(pod("first", volumes=using("a")), "n1")
    assert passes(ledger, "a", "b") == [False, False]
    assert passes(ledger, "b", "shared") == [True, True]
    ledger.remove_pod("uid-default-first")
    assert passes(ledger, "a", "b") == [True, True]


def test_a_pod_of_the_same_simulation_counts(ledger: Ledger) -> None:
    """Rolling it back frees the claim."""
    ledger.place(ledger.class_of(pod("first", volumes=using("a"))), ledger.cluster.everything()[:1])
    assert passes(ledger, "a") == [False, False]
    ledger.rollback(0)
    assert passes(ledger, "a") == [True, True]


def test_a_running_pod_passes_while_it_alone_uses_its_claim(ledger: Ledger) -> None:
    """It does not reject itself, but another pod with the claim does."""
    rows = ledger.cluster.everything()
    kind = ledger.class_of(pod("p", volumes=using("a", "shared")))
    ledger.put_pod(pod("other", volumes=using("shared")), "n1")
    ledger.place(kind, rows[:1])
    state = VolumeRestrictions(ledger).pre_filter(kind)
    assert state is not None
    assert state.still_passes(rows[:1]).tolist() == [True]
    ledger.put_pod(pod("rival", volumes=using("a")), "n2")
    assert state.still_passes(rows[:1]).tolist() == [False]


def test_classes_without_state(ledger: Ledger) -> None:
    """Pods without volumes, and with claims that any number of pods may use."""
    found = VolumeRestrictions(ledger)
    assert found.pre_filter(ledger.class_of(pod("p"))) is None
    assert found.pre_filter(ledger.class_of(pod("p", volumes=using("shared")))) is None
