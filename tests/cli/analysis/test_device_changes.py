"""Devices of further nodes, and claims of further pods and of pods that are gone."""

from pathlib import Path

from cpg_cli.analysis.assessment import assess
from cpg_cli.analysis.changes import pod_like
from cpg_cli.analysis.counterfactuals import counterfactuals
from cpg_cli.analysis.device_changes import (
    claims_without,
    slices_by_node,
    slices_like,
    with_claims_like,
    without_consumers,
)
from cpg_cli.analysis.scenarios import with_added_nodes
from cpg_cli.cluster.offline_scheduler import OfflineScheduler
from cpg_cli.cluster.sources import cluster_from_manifests
from cpg_cli.cluster.targets import unit_of
from cpg_engine.testing.builders import pod
from cpg_engine.testing.claim_builders import allocated, claiming, extended_claim, own_claim
from cpg_engine.testing.device_builders import device_claim, device_slice

CLUSTER = Path(__file__).parents[1] / "clusters" / "devices.yaml"


def test_a_further_node_has_pools_of_its_own() -> None:
    """Devices that several nodes can use are not copied."""
    own = [device_slice("a", node="n0"), device_slice("b", node="n0", pool="other", name="s1")]
    found = slices_by_node([*own, device_slice("c", node=None, all_nodes=True)])
    assert found == {"n0": own}
    copies = list(slices_like(found["n0"], "n1"))
    assert [(one.spec.node_name, one.spec.pool.name) for one in copies] == [("n1", "n0-n1"), ("n1", "other-n1")]
    assert [one.metadata.name for one in copies] == ["gpu.example.com-n0-n1", "s1-n1"]


def test_a_further_pod_has_claims_of_its_own() -> None:
    """Those of several pods are shared with it, and it waits for those that the model waits for."""
    model = claiming("p", "shared", made={"gpu": "p-gpu", "late": None})
    claims = {"default/p-gpu": allocated(own_claim("p"), "n0", "a", users=["p"])}
    made, own = with_claims_like(pod_like(model, "q"), model, claims)
    assert [(one.name, one.resource_claim_name) for one in made.status.resource_claim_statuses or ()] == [
        ("gpu", "q-gpu"),
        ("late", None),
    ]
    (claim,) = own
    assert (claim.metadata.name, claim.metadata.owner_references[0].uid) == ("q-gpu", made.metadata.uid)
    assert (claim.spec, claim.status.allocation) == (claims["default/p-gpu"].spec, None)
    plain = pod("p")
    assert with_claims_like(pod_like(plain, "q"), plain, {}) == (pod_like(plain, "q"), [])


def test_a_claim_without_consumers_has_no_devices() -> None:
    """Others keep them."""
    claim = allocated(device_claim("c"), "n0", "a", users=["p", "q"])
    uid_p, uid_q = (user.uid for user in claim.status.reserved_for or ())
    left = without_consumers(claim, [uid_p])
    assert [user.uid for user in left.status.reserved_for or ()] == [uid_q]
    assert left.status.allocation == claim.status.allocation
    assert without_consumers(claim, [uid_p, uid_q]).status.allocation is None
    assert without_consumers(claim, ["other"]) is claim


def test_claims_for_extended_resources_are_made_anew_with_their_pods() -> None:
    """Others lose their consumers; those of other pods stay."""
    made = [allocated(extended_claim(name), "n0", "a", users=[name]) for name in ("p", "q")]
    own = allocated(own_claim("p"), "n0", "b", users=["p"])
    gone = {owner.uid for owner in made[0].metadata.owner_references}
    left = list(claims_without([*made, own], gone))
    assert [one.metadata.name for one in left] == [made[1].metadata.name, own.metadata.name]
    assert [one.status.allocation is None for one in left] == [False, True]


def test_missing_members_would_have_claims() -> None:
    """A gang that lacks a pod fits if the pod is created, since a further node has devices for it."""
    dump = cluster_from_manifests("", CLUSTER.read_bytes(), scheduler_name="cpg-scheduler", now=0.0)
    scheduler = OfflineScheduler(with_added_nodes(dump, ["1 x rack=r1"]))
    found = assess(scheduler, unit_of(scheduler.cache, "default", "late"))
    assert "1 more pod like late-0 in late" in [one.text for one in counterfactuals(scheduler, found).found]
