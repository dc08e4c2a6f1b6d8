"""Gangs with volumes, through a whole cycle."""

import numpy as np
import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_api.scheduling.forest import Forest, key_of
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision, VolumeAllocation
from cpg_engine.filters import volume_restrictions
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, tree_unit
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.storage_builders import DRIVER, claim, csi_node, ephemeral, stock, storage_class, using, volume
from cpg_engine.verdicts import Finding, Status

ALONE = ("ReadWriteOncePod",)


def cluster(**labels: str) -> Snapshot:
    """Return nodes of 2 CPU by name, each with a label ``zone``."""
    snapshot = new_snapshot()
    for name, zone in labels.items():
        snapshot.ledger.put_node(node(name, cpu=2, labels={"zone": zone, "host": name}))
    return snapshot


def decided(snapshot: Snapshot, *pods: Pod, gang: int, key: str | None = None) -> Decision:
    """Decide about a gang of these pods."""
    group = pod_group("pg", gang=gang, key=key)
    tree = next(iter(Forest.of([group]).trees()))
    before = state(snapshot)
    unit = tree_unit(tree, {key_of(group): GroupPods(pending=pods)}, snapshot.ledger)
    decision = decide(snapshot, unit, SearchOptions(detail=True))
    assert state(snapshot) == before
    return decision


def state(snapshot: Snapshot) -> tuple[object, ...]:
    """Return what a cycle has to leave unchanged."""
    ledger = snapshot.ledger
    return ledger.used.tolist(), dict(ledger.volume_allocator.allocated), dict(ledger.attachments.users)


def bound_nodes(decision: Decision) -> dict[str, str]:
    """Return where pods are to be bound."""
    return {bind.uid.removeprefix("uid-default-"): bind.node for bind in decision.binds}


@pytest.mark.parametrize(("second", "bound"), [("pvc-1", {}), ("pvc-2", {"a": "node1", "b": "node1"})])
def test_members_cannot_share_an_exclusive_claim(second: str, bound: dict[str, str]) -> None:
    """Two members of a gang cannot share a ReadWriteOncePod claim; with one claim each both are bound."""
    snapshot = cluster(node1="z")
    for name in ("pvc-1", "pvc-2"):
        stock(snapshot.ledger.storage, claim(name, bound_to=f"pv-{name}", modes=ALONE))
        stock(snapshot.ledger.storage, volume(f"pv-{name}", claimed_by=name, phase="Bound", modes=ALONE))
    pods = (pod("a", cpu=1, volumes=using("pvc-1")), pod("b", cpu=1, volumes=using(second)))
    decision = decided(snapshot, *pods, gang=2)
    assert bound_nodes(decision) == bound
    if not bound:
        (report,) = decision.explanation.reports
        assert report.status is Status.UNSCHEDULABLE
        assert [reason.text for reason in report.reasons] == [volume_restrictions.REASON]


def test_a_gang_never_counts_a_volume_twice() -> None:
    """With three members, a claim each and two volumes, none is bound, and two of them could be."""
    snapshot = cluster(n1="a", n2="b")
    stock(snapshot.ledger.storage, storage_class(), *(claim(name) for name in "abc"))
    stock(snapshot.ledger.storage, volume("v1", at={"host": ["n1"]}), volume("v2", at={"host": ["n2"]}))
    pods = [pod(name, cpu=1, volumes=using(name)) for name in "abc"]
    assert decided(snapshot, *pods, gang=3).binds == ()
    assert bound_nodes(decided(snapshot, *pods, gang=2)) == {"a": "n1", "b": "n2"}


def test_a_missing_claim_is_unresolvable() -> None:
    """No eviction brings it, and the group says what it waits for."""
    snapshot = cluster(n1="a")
    (report,) = decided(snapshot, pod("a", cpu=1, volumes=using("gone")), gang=1).explanation.reports
    assert report.status is Status.UNRESOLVABLE
    assert [reason.text for reason in report.reasons] == ['persistentvolumeclaim "gone" not found']


def test_a_gang_that_shares_a_claim_yet_to_be_bound() -> None:
    """Its members spread over the nodes that will reach the volume, wherever it is provisioned."""
    snapshot = cluster(n1="a", n2="a", n3="b")
    stock(snapshot.ledger.storage, storage_class(provisioner=DRIVER), claim("c", modes=("ReadWriteMany",)))
    stock(snapshot.ledger.storage, *(csi_node(name, keys=["zone"]) for name in ("n1", "n2", "n3")))
    pods = [pod(name, cpu=1, volumes=using("c")) for name in "abcd"]
    assert set(bound_nodes(decided(snapshot, *pods, gang=4)).values()) == {"n1", "n2"}


def test_bounds_use_the_reach_of_volumes() -> None:
    """A domain without the gang's volume is not tried, and that is a proof."""
    snapshot = cluster(n1="a", n2="b")
    stock(snapshot.ledger.storage, claim("c", bound_to="v"), volume("v", at={"zone": ["b"]}))
    pods = [pod(name, cpu=1, volumes=using("c")) for name in "abc"]
    assert set(bound_nodes(decided(snapshot, *pods[:2], gang=2, key="zone")).values()) == {"n2"}
    decision = decided(snapshot, *pods, gang=3, key="zone")
    assert decision.explanation.finding is Finding.IMPOSSIBLE
    (report,) = decision.explanation.reports
    assert [(each.domain.value, each.fits) for each in report.candidates] == [("b", 2), ("a", 0)]


def test_every_pod_has_its_own_ephemeral_claim() -> None:
    """A pod without its claim waits; the others do not."""
    snapshot = cluster(n1="a")
    pods = [pod(name, cpu=1, volumes=ephemeral("data")) for name in "ab"]
    stock(snapshot.ledger.storage, storage_class(provisioner=DRIVER), claim("a-data", owner=pods[0]))
    decision = decided(snapshot, *pods, gang=1)
    assert bound_nodes(decision) == {"a": "n1"}
    (report,) = decision.explanation.reports
    assert [reason.text for reason in report.reasons] == [
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "b-data"'
    ]


def test_volume_limits_are_room() -> None:
    """A gang spreads by what nodes attach as it does by resources, and evictions may help."""
    snapshot = cluster(n1="a", n2="b")
    stock(snapshot.ledger.storage, *(csi_node(name, limit=1) for name in ("n1", "n2")))
    for name in "abc":
        stock(snapshot.ledger.storage, claim(name, bound_to=f"v-{name}"), volume(f"v-{name}", handle=name))
    pods = [pod(name, cpu=0.5, volumes=using(name)) for name in "abc"]
    assert bound_nodes(decided(snapshot, *pods, gang=2)) == {"a": "n1", "b": "n2"}
    (report,) = decided(snapshot, *pods, gang=3).explanation.reports
    assert report.status is Status.UNSCHEDULABLE


def test_a_nominated_pod_reserves_its_volume() -> None:
    """A volume that it will need is not given to another pod."""
    snapshot = cluster(n1="a")
    stock(snapshot.ledger.storage, storage_class(), claim("a"), claim("b"), volume("v"))
    nominated = snapshot.ledger.class_of(pod("a", volumes=using("a")))
    mark = snapshot.ledger.mark()
    snapshot.ledger.place(nominated, np.array([snapshot.ledger.cluster.row_of["n1"]]))
    assert decided(snapshot, pod("b", volumes=using("b")), gang=1).binds == ()
    snapshot.ledger.rollback(mark)
    assert bound_nodes(decided(snapshot, pod("b", volumes=using("b")), gang=1)) == {"b": "n1"}


def test_a_claim_takes_only_volumes_that_it_selects() -> None:
    """Of two volumes that would fit, the one with the labels is chosen, and the decision names it."""
    snapshot = cluster(node1="z", node2="z")
    storage = snapshot.ledger.storage
    stock(storage, storage_class(provisioner="kubernetes.io/no-provisioner"))
    for name, disk in (("node1", "slow"), ("node2", "fast")):
        stock(storage, volume(f"pv-{name}", at={"host": [name]}, labels={"disk": disk}))
    wanted = claim("data")
    selector = LabelSelector(match_labels={"disk": "fast"})
    stock(storage, replace(wanted, spec=replace(wanted.spec, selector=selector)))
    decision = decided(snapshot, pod("a", cpu=1, volumes=using("data")), gang=1)
    (bind,) = decision.binds
    assert (bind.node, bind.allocations) == ("node2", (VolumeAllocation("default/data", "pv-node2", "node2"),))


def test_a_claim_takes_no_volume_of_other_attributes() -> None:
    """The attributes class of claim and volume has to be the same."""
    snapshot = cluster(node1="z")
    storage = snapshot.ledger.storage
    stock(storage, storage_class(provisioner="kubernetes.io/no-provisioner"))
    stock(storage, volume("pv", at={"host": ["node1"]}))
    wanted = claim("data")
    stock(storage, replace(wanted, spec=replace(wanted.spec, volume_attributes_class_name="gold")))
    assert decided(snapshot, pod("a", cpu=1, volumes=using("data")), gang=1).binds == ()
