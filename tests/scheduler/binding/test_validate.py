"""One more look before the first bind: what speaks against it, and what does not."""

from collections.abc import Callable
from typing import Any

import pytest

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from cpg_api.core.node import Taint
from cpg_api.core.pod import Container, ContainerPort, Pod
from cpg_api.meta import LabelSelector
from cpg_engine.testing.builders import metadata, node, pod
from cpg_engine.testing.storage_builders import claim, csi_node, using, volume
from cpg_scheduler.binding.validate import known_violations, validate_binds
from cpg_scheduler.cache.reservations import Reservation
from cpg_scheduler.testing.stage import Stage


def decided() -> Stage:
    """Return two nodes, with two pods assumed on the first and one on the second; one has a claim that is bound."""
    stage = Stage(node("n1", cpu=2), node("n2", cpu=2), claim("x", bound_to="pv"), volume("pv"))
    stage.put(pod("a", cpu=1), pod("b", cpu=1), pod("c", cpu=1, volumes=using("x")))
    for name, where in (("a", "n1"), ("b", "n1"), ("c", "n2")):
        stage.cache.assume(f"uid-default-{name}", where)
    return stage


def look(stage: Stage) -> str:
    """Look at the decision once more; the ledger stays as it is."""
    ledger = stage.cache.snapshot.ledger
    before = ledger.used.tolist()
    found = validate_binds(
        stage.cache, {f"uid-default-{name}": node for name, node in zip("abc", ("n1", "n1", "n2"), strict=True)}
    )
    assert ledger.used.tolist() == before
    return found


TAINT = Taint(key="bad", effect="NoSchedule")


@pytest.mark.parametrize(
    ("happens", "expected"),
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
    root = stage.cache.unit_of(stage.pod("z"))
    stage.cache.reservations.put(waiting, Reservation("n1", root, 0))
    assert look(stage) == ""


# What pods see of each other.

HOST = "kubernetes.io/hostname"
ONLY = ("ReadWriteOncePod",)


def term(who: str) -> PodAffinity:
    """Return the rule that is about pods with a label, on the same node."""
    found = PodAffinityTerm(topology_key=HOST, label_selector=LabelSelector({"app": who}))
    return PodAffinity(required_during_scheduling_ignored_during_execution=(found,))


def app(name: str, label: str, **fields: Any) -> Pod:
    """Return a pod with a label."""
    return pod(name, meta=metadata(name, app=label), **fields)


def port(name: str, **fields: Any) -> Pod:
    """Return a pod that wants port 80 of its node."""
    return pod(name, containers=(Container(name="main", ports=(ContainerPort(80, host_port=80),)),), **fields)


def spread(name: str) -> Pod:
    """Return a pod that wants pods like itself, and others with its label, to be spread over the nodes."""
    rule = TopologySpreadConstraint(
        max_skew=1, topology_key=HOST, when_unsatisfiable="DoNotSchedule", label_selector=LabelSelector({"app": "web"})
    )
    return app(name, "web", topology_spread_constraints=(rule,))


NODES = tuple(node(name, labels={HOST: name}) for name in ("n1", "n2"))
STORE = (volume("pv", handle="h"), claim("x", bound_to="pv", modes=ONLY), csi_node("n1", limit=1))
NEEDED = app("cache", "cache", node_name="n1")


@pytest.mark.parametrize(
    ("ours", "happens", "who"),
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
    ids=["port", "avoided", "avoiding", "needed one gone", "crowded", "claim in use", "too many volumes"],
)
def test_pods_of_others_may_speak_against_a_bind(ours: Pod, happens: Callable[[Stage], None], who: str) -> None:
    """Whatever another scheduler has bound meanwhile: each filter that looks at pods is asked."""
    stage = Stage(*NODES, *STORE, NEEDED, ours)
    where = {ours.metadata.uid: "n1"}
    stage.cache.assume(ours.metadata.uid, "n1")
    borne = known_violations(stage.cache, where)
    assert (borne, validate_binds(stage.cache, where, borne)) == (frozenset(), "")
    happens(stage)
    assert validate_binds(stage.cache, where, borne) == f"pods have come or gone that speak against node n1 ({who})"


def test_what_pods_bear_from_the_beginning_is_no_objection() -> None:
    """The first of a gang may stand where the rest has made it too full for it; it would be decided so for ever."""
    stage = Stage(*NODES, spread("a"), app("b", "web"), port("c"))
    where = {f"uid-default-{name}": "n1" for name in "abc"}
    for uid in where:
        stage.cache.assume(uid, "n1")
    borne = known_violations(stage.cache, where)
    assert borne == {("uid-default-a", "PodTopologySpread")}
    stage.put(pod("z", node_name="n2"))
    assert validate_binds(stage.cache, where, borne) == ""
    stage.put(port("other", node_name="n1"))
    assert validate_binds(stage.cache, where, borne).endswith("(NodePorts)")


def test_nominated_pods_are_no_reason_to_be_discontent() -> None:
    """They were passed by when it was decided; when it is asked who stands where he could not come, too."""
    stage = Stage(*NODES, port("a"), port("z"))
    root = stage.cache.unit_of(stage.pod("z"))
    stage.cache.reservations.put(stage.pod("z"), Reservation("n1", root, 0))
    stage.cache.assume("uid-default-a", "n1")
    assert known_violations(stage.cache, ["uid-default-a"]) == frozenset()
    assert validate_binds(stage.cache, {"uid-default-a": "n1"}) == ""
