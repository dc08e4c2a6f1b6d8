"""Pod classes: which pods are identical for scheduling, and what is compiled for them."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
)
from cpg_api.core.pod import Container, ContainerPort, ContainerStatus, Pod, Toleration
from cpg_api.core.resources import ResourceRequirements
from cpg_api.core.volumes import ClaimVolumeSource, EphemeralVolumeSource, PodVolume
from cpg_api.meta import LabelSelector
from cpg_engine.cluster.device_needs import ClaimNeed, PodDevices
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import NOMINATED, make_class, signature
from cpg_engine.testing.builders import metadata, node, pod

BROKEN = NodeSelectorTerm((NodeSelectorRequirement("zone", "Foo"),))
ZONE = NodeSelectorTerm((NodeSelectorRequirement("zone", "Exists"),))


def labelled(name: str, **labels: str) -> Pod:
    """Return a pod with labels."""
    return pod(name, meta=metadata(name, **labels))


def with_container(**fields: Any) -> Pod:
    """Return a pod of one container."""
    return pod("p", containers=(Container(name="c", **fields),))


def test_pods_of_one_job_share_a_class() -> None:
    """Name, UID, age, labels that no selector asks for, priority and gates make no difference."""
    other = pod("q", priority=7, meta=metadata("q", created="2020-01-01T00:00:00Z", index="3"))
    assert signature(pod("p")) == signature(other)


def test_labels_count_once_a_selector_asks_for_them() -> None:
    """Only those labels distinguish pods, in any order."""
    one, two = labelled("p", app="a", index="1"), labelled("q", index="2", app="a")
    assert signature(one, {"app"}) == signature(two, {"app"})
    assert signature(one, {"index"}) != signature(two, {"index"})
    assert dict(make_class(0, one, {"app", "tier"}).labels) == {"app": "a"}


@pytest.mark.parametrize(
    "other",
    [
        pod("p", meta=metadata("p", namespace="other")),
        pod("p", cpu=1),
        pod("p", node_selector={"a": "b"}),
        pod("p", tolerations=(Toleration("a"),)),
        pod("p", overhead={"cpu": 1}),
        pod("p", resources=ResourceRequirements(requests={"cpu": 1})),
        pod("p", affinity=Affinity(node_affinity=NodeAffinity(NodeSelector((ZONE,))))),
        pod("p", topology_spread_constraints=(TopologySpreadConstraint(topology_key="zone"),)),
        pod("p", init_containers=(Container(name="i"),)),
        pod("p", volumes=(PodVolume("v", persistent_volume_claim=ClaimVolumeSource("c")),)),
        with_container(image="i"),
        with_container(ports=(ContainerPort(host_port=80),)),
        replace(pod("p"), spec=replace(pod("p").spec, node_name="n")),
        replace(pod("p"), metadata=replace(metadata("p"), deletion_timestamp="2026-01-01T00:00:00Z")),
        replace(pod("p"), metadata=replace(metadata("p"), uid=f"{NOMINATED}uid-default-p")),
    ],
)
def test_everything_that_scheduling_reads_distinguishes_pods(other: Pod) -> None:
    """A pod that differs in any of these has another class."""
    assert signature(pod("p")) != signature(other)


def test_an_allocated_resize_distinguishes_pods() -> None:
    """While a pod is resized, it takes what its status says."""
    plain = with_container()
    status = replace(plain.status, container_statuses=(ContainerStatus("c", allocated_resources={"cpu": 1}),))
    assert signature(plain) != signature(replace(plain, status=status))


def test_container_ports_do_not_matter() -> None:
    """A container port that is no host port concerns no other pod."""
    assert signature(with_container()) == signature(with_container(ports=(ContainerPort(container_port=80),)))


def test_the_node_of_a_running_pod_does_not_matter() -> None:
    """A node name restricts a pod that has no phase yet; later it only says where the pod is."""
    wishing = replace(pod("p"), spec=replace(pod("p").spec, node_name="n"))
    running = pod("p", node_name="n")
    assert (make_class(0, wishing).node_name, make_class(0, running).node_name) == ("n", "")
    assert signature(pod("q")) == signature(running)


def test_a_nominated_pod_is_known_by_its_uid() -> None:
    """All nominated pods that are otherwise identical share a class."""
    one, other = (replace(pod(name), metadata=replace(metadata(name), uid=NOMINATED + name)) for name in "pq")
    assert (make_class(0, one).nominated, make_class(0, pod("p")).nominated) == (True, False)
    assert signature(one) == signature(other)


def test_ephemeral_volumes_make_a_class_per_pod() -> None:
    """Two pods with ephemeral volumes have different claims."""
    volumes = (PodVolume("v", ephemeral=EphemeralVolumeSource()),)
    assert signature(pod("p", volumes=volumes)) != signature(pod("q", volumes=volumes))


def test_a_class_has_the_requests_of_its_pods() -> None:
    """They are summed, and only those above zero are kept."""
    found = make_class(4, pod("p", cpu=1, overhead={"gpu": 0, "x": 2}, node_selector={"a": "b"}))
    assert (found.index, found.requests) == (4, {"cpu": 1000, "x": 2, "pods": 1})
    assert (found.scored_cpu, found.scored_memory) == (1000, 200 * 2**20)
    assert found.node_selector.equal == (("a", "b"),)
    assert (found.tolerations, found.node_affinity, found.preferences, found.problems) == ((), None, (), ())


def test_a_pod_without_containers_is_scored_as_zero() -> None:
    """Defaults apply per container."""
    found = make_class(0, Pod())
    assert (found.scored_cpu, found.scored_memory) == (0, 0)


def test_images_are_those_of_the_containers() -> None:
    """Each of them may be on a node already."""
    assert make_class(0, with_container(image="i")).images == ("i",)


def test_affinity_is_compiled_with_its_problems() -> None:
    """Every malformed required term and preference is reported with its path; the others still count."""
    affinity = NodeAffinity(
        NodeSelector((ZONE, BROKEN)), (PreferredSchedulingTerm(3, ZONE), PreferredSchedulingTerm(5, BROKEN))
    )
    found = make_class(0, pod("p", affinity=Affinity(node_affinity=affinity)))
    assert found.node_affinity is not None
    assert len(found.node_affinity.terms) == 1
    assert [weight for weight, _ in found.preferences] == [3, 5]
    assert [problem.path for problem in found.problems] == [
        "spec.affinity.nodeAffinity.required.nodeSelectorTerms[1].matchExpressions[0].operator",
        "spec.affinity.nodeAffinity.preferred[1].matchExpressions[0].operator",
    ]


def test_devices_that_are_needed_distinguish_pods() -> None:
    """By what their claims ask for, and by the claims themselves where they are not the pod's own."""
    needs = [PodDevices((ClaimNeed("s"),)), PodDevices((ClaimNeed("t"),)), PodDevices((ClaimNeed("s", "c"),)), None]
    assert len({signature(pod("p"), devices=found) for found in needs}) == 4


def test_pod_affinity_is_no_node_affinity() -> None:
    """An affinity without node affinity has neither terms nor preferences."""
    found = make_class(0, pod("p", affinity=Affinity()))
    assert (found.node_affinity, found.preferences) == (None, ())


def test_the_ledger_makes_each_class_once() -> None:
    """Identical pods get the same object, others another one, numbered in order."""
    ledger = Ledger()
    first = ledger.class_of(pod("p", cpu=1))
    assert ledger.class_of(pod("q", cpu=1)) is first
    assert [first.index, ledger.class_of(pod("p", cpu=2)).index] == [0, 1]


@pytest.fixture
def spread() -> Pod:
    """Return a pod that selects pods by the label app."""
    constraint = TopologySpreadConstraint(
        topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=LabelSelector({"app": "a"})
    )
    return pod("asker", topology_spread_constraints=(constraint,))


def test_a_new_selector_splits_classes(spread: Pod) -> None:
    """The first selector for a label splits the classes of pods that have it."""
    ledger = Ledger()
    assert dict(ledger.class_of(labelled("p", app="a")).labels) == {}
    asking = ledger.class_of(spread)
    assert ledger.class_of(spread) is asking
    assert dict(ledger.class_of(labelled("p", app="a")).labels) == {"app": "a"}
    assert dict(ledger.class_of(labelled("q")).labels) == {}


def test_running_pods_get_their_new_class(spread: Pod) -> None:
    """Held pods, on a known node or not, have their new class from then on, and take what they took."""
    ledger = Ledger()
    ledger.put_node(node("n"))
    for name, home in (("p", "n"), ("q", "elsewhere")):
        ledger.put_pod(labelled(name, app="a"), home)
    ledger.put_pod(labelled("r"), "n")
    ledger.class_of(spread)
    assert ledger.used[0].tolist() == [0, 0, 0, 2, 0]
    for name in "pq":
        version = ledger.version
        ledger.put_pod(labelled(name, app="a"), "n" if name == "p" else "elsewhere")
        assert version == ledger.version
    for name in "pr":
        ledger.remove_pod(pod(name).metadata.uid)
    assert not ledger.used.any()
