"""Validation of a batch before its first bind."""

from collections.abc import Callable
from typing import Any

import pytest

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from cpg_api.core.node import Taint
from cpg_api.core.pod import Container, ContainerPort, Pod
from cpg_api.meta import LabelSelector
from cpg_engine.decisions import DeviceAllocation
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group
from cpg_engine.testing.claim_builders import allocated, claiming
from cpg_engine.testing.device_builders import device_claim, device_class, device_slice
from cpg_engine.testing.storage_builders import claim, csi_node, using, volume
from cpg_scheduler.binding.validate import complete_groups, known_violations, validate_binds
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.testing.stage import Stage


def decided() -> Stage:
    """Return two pods assumed on one node and one on another, the latter with a bound claim."""
    stage = Stage(node("n1", cpu=2), node("n2", cpu=2), claim("x", bound_to="pv"), volume("pv"))
    stage.put(pod("a", cpu=1), pod("b", cpu=1), pod("c", cpu=1, volumes=using("x")))
    for name, where in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        stage.cache.assume(f"uid-default-{name}", where)
    return stage


def validate(stage: Stage) -> str:
    """Validate the binds; the ledger is as before afterwards."""
    ledger = stage.cache.snapshot.ledger
    before = ledger.used.tolist()
    found = validate_binds(
        stage.cache, {f"uid-default-{name}": node for name, node in zip("abc", ("n1", "n1", "n2"), strict=True)}
    )
    assert ledger.used.tolist() == before
    return found


TAINT = Taint(key="bad", effect="NoSchedule")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda stage: stage.delete(stage.pod("b")), "one of its pods is gone or terminating"),
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
def test_a_change_of_its_pods_or_nodes_outdates_a_batch(change: Callable[[Stage], None], expected: str) -> None:
    """It is named, so that the log says why the batch was dropped."""
    stage = decided()
    change(stage)
    assert validate(stage) == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda _: None,
        lambda stage: stage.put(pod("z", cpu=1, node_name="n2")),
        lambda stage: stage.put(node("n3", unschedulable=True)),
        lambda stage: stage.put(node("n1", cpu=2, memory="1Gi"), pod("z", memory="2Gi", node_name="n1")),
    ],
    ids=["nothing", "pod on the node", "other node", "other resource overdrawn"],
)
def test_a_change_that_does_not_concern_its_pods_does_not_outdate_a_batch(change: Callable[[Stage], None]) -> None:
    """Otherwise no batch would be bound in a busy cluster."""
    stage = decided()
    change(stage)
    assert validate(stage) == ""


def test_reservations_do_not_outdate_a_batch() -> None:
    """The decision has ignored them, and the next one would as well."""
    stage = decided()
    nominated = pod("z", cpu=2)
    stage.put(nominated)
    root = stage.cache.unit_of(stage.pod("z"))
    stage.cache.reservations.put(nominated, Reservation("n1", root, 0))
    assert validate(stage) == ""


# Groups.


def complete(stage: Stage) -> set[str]:
    """Return the groups above the member a1 that have their minimum."""
    found = stage.pod("a1")
    return {key.name for key in complete_groups(stage.cache, stage.cache.unit_of(found), [found.metadata.uid])}


def test_the_groups_above_a_pod_have_their_minimum_with_assumed_pods() -> None:
    """Those beside it do not count, and pods that are not assumed do not count."""
    stage = Stage(node("n1"), composite("root", gang=1), pod_group("a", gang=2, parent="root"))
    stage.put(pod_group("b", gang=1, parent="root"), pod("a1", group="a"), pod("a2", group="a"))
    stage.put(pod("b1", group="b", node_name="n1"))
    stage.cache.assume("uid-default-a1", "n1")
    assert complete(stage) == {"root"}
    stage.cache.assume("uid-default-a2", "n1")
    assert complete(stage) == {"root", "a"}
    stage.delete(stage.pod("a2"))
    assert complete(stage) == {"root"}
    stage.put(composite("root", gang=2))
    assert complete(stage) == set()


def test_a_pod_without_a_group_has_no_groups_above_it() -> None:
    """Nor does one that is gone."""
    stage = Stage(pod("a1"))
    assert complete(stage) == set()
    assert complete_groups(stage.cache, stage.cache.unit_of(stage.pod("a1")), ["gone"]) == frozenset()


# Pods that depend on other pods.

HOST = "kubernetes.io/hostname"
ONLY = ("ReadWriteOncePod",)


def term(label: str) -> PodAffinity:
    """Return a term that selects the pods of an app on the same node."""
    found = PodAffinityTerm(topology_key=HOST, label_selector=LabelSelector({"app": label}))
    return PodAffinity(required_during_scheduling_ignored_during_execution=(found,))


def app(name: str, label: str, **fields: Any) -> Pod:
    """Return a pod of an app."""
    return pod(name, meta=metadata(name, app=label), **fields)


def port(name: str, **fields: Any) -> Pod:
    """Return a pod with host port 80."""
    return pod(name, containers=(Container(name="main", ports=(ContainerPort(80, host_port=80),)),), **fields)


def spread(name: str) -> Pod:
    """Return a pod of the app web, which is spread over the nodes."""
    rule = TopologySpreadConstraint(
        max_skew=1, topology_key=HOST, when_unsatisfiable="DoNotSchedule", label_selector=LabelSelector({"app": "web"})
    )
    return app(name, "web", topology_spread_constraints=(rule,))


NODES = tuple(node(name, labels={HOST: name}) for name in ("n1", "n2"))
STORE = (volume("pv", handle="h"), claim("x", bound_to="pv", modes=ONLY), csi_node("n1", limit=1))
NEEDED = app("cache", "cache", node_name="n1")


@pytest.mark.parametrize(
    ("ours", "change", "plugin"),
    [
        (port("a"), lambda stage: stage.put(port("z", node_name="n1")), "NodePorts"),
        (
            app("a", "web", affinity=Affinity(pod_anti_affinity=term("db"))),
            lambda stage: stage.put(app("z", "db", node_name="n1")),
            "InterPodAffinity",
        ),
        (
            app("a", "web"),
            lambda stage: stage.put(app("z", "db", node_name="n1", affinity=Affinity(pod_anti_affinity=term("web")))),
            "InterPodAffinity",
        ),
        (
            app("a", "web", affinity=Affinity(pod_affinity=term("cache"))),
            lambda stage: stage.delete(NEEDED),
            "InterPodAffinity",
        ),
        (spread("a"), lambda stage: stage.put(app("z", "web", node_name="n1")), "PodTopologySpread"),
        (
            pod("a", volumes=using("x")),
            lambda stage: stage.put(pod("z", volumes=using("x"), node_name="n2")),
            "VolumeRestrictions",
        ),
        (
            pod("a", volumes=using("x")),
            lambda stage: stage.put(
                volume("other", handle="o"),
                claim("y", bound_to="other"),
                pod("z", volumes=using("y"), node_name="n1"),
            ),
            "NodeVolumeLimits",
        ),
    ],
    ids=["port", "anti-affinity", "existing anti-affinity", "affinity", "spread", "claim in use", "too many volumes"],
)
def test_pods_that_another_scheduler_has_bound_outdate_a_batch(
    ours: Pod, change: Callable[[Stage], None], plugin: str
) -> None:
    """Each filter that depends on other pods is asked."""
    stage = Stage(*NODES, *STORE, NEEDED, ours)
    where = {ours.metadata.uid: "n1"}
    stage.cache.assume(ours.metadata.uid, "n1")
    known = known_violations(stage.cache, where)
    assert (known, validate_binds(stage.cache, where, known)) == (frozenset(), "")
    change(stage)
    assert validate_binds(stage.cache, where, known) == f"pods that were bound or deleted rule out node n1 ({plugin})"


def test_a_known_violation_does_not_outdate_a_batch() -> None:
    """The rest of a gang may crowd the domain of its first pod; the next decision would be the same."""
    stage = Stage(*NODES, spread("a"), app("b", "web"), port("c"))
    where = {f"uid-default-{name}": "n1" for name in "abc"}
    for uid in where:
        stage.cache.assume(uid, "n1")
    known = known_violations(stage.cache, where)
    assert known == {("uid-default-a", "PodTopologySpread")}
    stage.put(pod("z", node_name="n2"))
    assert validate_binds(stage.cache, where, known) == ""
    stage.put(port("other", node_name="n1"))
    assert validate_binds(stage.cache, where, known).endswith("(NodePorts)")


def test_nominated_pods_cause_no_violation() -> None:
    """The decision has ignored their reservations, so validation does as well."""
    stage = Stage(*NODES, port("a"), port("z"))
    root = stage.cache.unit_of(stage.pod("z"))
    stage.cache.reservations.put(stage.pod("z"), Reservation("n1", root, 0))
    stage.cache.assume("uid-default-a", "n1")
    assert known_violations(stage.cache, ["uid-default-a"]) == frozenset()
    assert validate_binds(stage.cache, {"uid-default-a": "n1"}) == ""


def test_devices_that_another_claim_has_outdate_a_batch() -> None:
    """Two schedulers can write the same device to two claims; the batch that finds it is dropped."""
    stage = Stage(node("n", cpu=2), device_class(), device_slice("gpu-0", node="n"), device_claim("mine"))
    stage.put(claiming("p", "mine", cpu=1))
    mine, other = allocated(device_claim("mine"), "n", "gpu-0"), allocated(device_claim("other"), "n", "gpu-0")
    assert mine.status.allocation is not None
    decision = DeviceAllocation("default/mine", "uid-mine", mine.status.allocation)
    stage.cache.assume("uid-default-p", "n", (decision,))
    assert validate_binds(stage.cache, {"uid-default-p": "n"}) == ""
    stage.put(other)
    problem = validate_binds(stage.cache, {"uid-default-p": "n"})
    assert problem == "another claim has the devices of resourceclaim default/mine"
