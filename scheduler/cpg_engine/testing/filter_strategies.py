"""Hypothesis strategies for filters that depend on other pods: nodes, pods on them, and an incoming pod.

Labels, keys and ports come from few values each, so that what is generated matches and conflicts.
"""

from typing import TypeVar

import hypothesis.strategies as st
import numpy as np
from msgspec import Struct

from cpg_api.core.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from cpg_api.core.node import Node, Taint
from cpg_api.core.pod import Container, ContainerPort, Pod, PodSpec, Toleration
from cpg_api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from cpg_engine.cluster.axes import Rows
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.testing.builders import node
from cpg_engine.testing.filter_model import PlacedPods

Drawn = TypeVar("Drawn")

HOSTNAME = "kubernetes.io/hostname"
KEYS = ("zone", "zone", "rack", HOSTNAME)
RED = Taint(key="team", value="red", effect="NoSchedule")
BEARS_RED = Toleration(key="team", operator="Exists")
NAMESPACES = {"one": {"tier": "front"}, "two": {"tier": "back"}, "three": {}}
SOMETIMES = st.sampled_from([False, False, True])
RARELY = st.sampled_from([False] * 5 + [True])
NUMBERS = {most: st.integers(0, most) for most in (1, 2, 3, 6)}
HOST_INDEXES = {number: st.integers(0, number - 1) for number in range(1, 5)}
UIDS = st.sampled_from(["uid-", "uid-", "nominated/uid-"])
WHERE = st.sampled_from(["one", "one", "two", "three", "gone"])

POD_LABELS = st.sampled_from(
    [
        {key: value for key, value in (("app", app), ("track", track)) if value}
        for app in ("web", "web", "db", None)
        for track in ("old", "new", None)
    ]
)
SELECTORS = (
    *(LabelSelector(match_labels={"app": app}) for app in ("web", "web", "db")),
    LabelSelector(),
    LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", ("web", "cache")),)),
    LabelSelector(match_expressions=(LabelSelectorRequirement("app", "NotIn", ("db",)),)),
    LabelSelector(match_labels={"app": "web"}, match_expressions=(LabelSelectorRequirement("track", "DoesNotExist"),)),
    LabelSelector(match_expressions=(LabelSelectorRequirement("track", "Exists"),)),
    None,
)
NEAR: tuple[tuple[tuple[str, ...] | None, LabelSelector | None], ...] = (
    (None, None),
    (None, None),
    (("one",), None),
    (("two", "gone"), None),
    (None, LabelSelector()),
    (("three",), LabelSelector(match_labels={"tier": "back"})),
    (None, LabelSelector(match_expressions=(LabelSelectorRequirement("tier", "DoesNotExist"),))),
)
TERMS = st.sampled_from(
    [
        PodAffinityTerm(
            label_selector=selector,
            topology_key=key,
            namespaces=namespaces,
            namespace_selector=namespace_selector,
            match_label_keys=match,
            mismatch_label_keys=mismatch,
        )
        for selector in SELECTORS
        for key in KEYS
        for namespaces, namespace_selector in NEAR
        for match, mismatch in ((None, None), (None, None), (("track",), None), (None, ("track",)))
    ]
)
WEIGHTS = st.sampled_from([1, 7, 100])
ON_SSD = NodeAffinity(
    required_during_scheduling_ignored_during_execution=NodeSelector(
        (NodeSelectorTerm((NodeSelectorRequirement("disk", "In", ("ssd",)),)),)
    )
)
CONSTRAINTS = st.sampled_from(
    [
        TopologySpreadConstraint(
            max_skew=max_skew,
            topology_key=key,
            when_unsatisfiable=action,
            label_selector=selector,
            min_domains=min_domains,
            node_affinity_policy=affinity_policy,
            node_taints_policy=taints_policy,
            match_label_keys=match,
        )
        for max_skew in (1, 2)
        for key in KEYS
        for action in ("DoNotSchedule", "ScheduleAnyway")
        for selector in SELECTORS
        for min_domains in (None, 3)
        for affinity_policy in (None, "Honor", "Ignore")
        for taints_policy in (None, "Honor")
        for match in (None, None, ("track",))
    ]
)
PORTS = [
    ContainerPort(host_port=port, host_ip=address, protocol=protocol)
    for port in (0, 80, 80, 443)
    for address in ("", "0.0.0.0", "10.0.0.1", "10.0.0.2")  # noqa: S104 - nothing is bound here
    for protocol in ("TCP", "TCP", "UDP")
]
CONTAINERS = st.sampled_from(
    [Container()]
    + [Container(ports=(port, PORTS[number // 2]), restart_policy="Always") for number, port in enumerate(PORTS)]
    + [Container(ports=(port,)) for port in PORTS]
)
NODE_LABELS = st.sampled_from(
    [
        {key: value for key, value in (("zone", zone), ("rack", rack), ("disk", disk)) if value}
        for zone in ("a", "b", "c", None)
        for rack in ("1", "2", None)
        for disk in ("ssd", None)
    ]
)


def _some(draw: st.DrawFn, strategy: st.SearchStrategy[Drawn], most: int) -> tuple[Drawn, ...]:
    return tuple(draw(strategy) for _ in range(draw(NUMBERS[most])))


@st.composite
def with_ports(draw: st.DrawFn) -> PodSpec:
    """Return the spec of a pod that may have host ports."""
    return PodSpec(containers=_some(draw, CONTAINERS, 2) or None, init_containers=_some(draw, CONTAINERS, 1) or None)


@st.composite
def with_affinity(draw: st.DrawFn) -> PodSpec:
    """Return the spec of a pod that may have affinity to other pods."""
    if draw(RARELY):
        return PodSpec()
    return PodSpec(affinity=Affinity(pod_affinity=_affinity(draw), pod_anti_affinity=_affinity(draw)))


def _affinity(draw: st.DrawFn) -> PodAffinity | None:
    weighted = [WeightedPodAffinityTerm(draw(WEIGHTS), term) for term in _some(draw, TERMS, 1)]
    return PodAffinity(
        required_during_scheduling_ignored_during_execution=_some(draw, TERMS, 2) or None,
        preferred_during_scheduling_ignored_during_execution=tuple(weighted) or None,
    )


@st.composite
def with_spread(draw: st.DrawFn) -> PodSpec:
    """Return the spec of a pod that may have spread constraints, and may be restricted to some nodes."""
    picky = draw(NUMBERS[6])
    return PodSpec(
        affinity=Affinity(node_affinity=ON_SSD) if picky == 1 else None,
        node_selector={"disk": "ssd"} if picky == 2 else None,
        tolerations=(BEARS_RED,) if picky % 2 else None,
        topology_spread_constraints=_some(draw, CONSTRAINTS, 3) or None,
    )


class FilterCase(Struct, frozen=True):
    """Placed pods and an incoming pod."""

    placed: PlacedPods
    incoming: Pod

    def settled(self) -> tuple[Ledger, PodClass, Rows]:
        """Return a ledger with every second pod placed by simulation, the incoming pod's class, and all rows."""
        ledger = Ledger()
        for name, labels in self.placed.namespaces.items():
            ledger.pod_index.put_namespace(name, dict(labels))
        for found in self.placed.nodes:
            ledger.put_node(found)
        for pod in (self.incoming, *(pod for pod, _ in self.placed.pods)):
            ledger.class_of(pod)  # so that every label is asked for before the first pod is placed
        row_of = ledger.cluster.row_of
        for index, (pod, host) in enumerate(self.placed.pods):
            if index % 2:
                ledger.place(ledger.class_of(pod), np.array((row_of[host.metadata.name],), dtype=np.intp))
            else:
                ledger.put_pod(pod, host.metadata.name)
        rows = np.array([row_of[found.metadata.name] for found in self.placed.nodes], dtype=np.intp)
        return ledger, ledger.class_of(self.incoming), rows


@st.composite
def filter_cases(draw: st.DrawFn, specs: st.SearchStrategy[PodSpec]) -> FilterCase:
    """Return up to four nodes and six pods, some only nominated, one more pod, and namespaces, one without labels."""
    nodes = tuple(_node(draw, f"n{number}") for number in range(draw(NUMBERS[3]) + 1))
    host = HOST_INDEXES[len(nodes)]
    names = [f"p{number}" for number in range(draw(NUMBERS[6]))]
    pods = [(_pod(draw, specs, name, uid=draw(UIDS) + name), nodes[draw(host)]) for name in names]
    placed = PlacedPods(nodes=nodes, pods=tuple(pods), namespaces=NAMESPACES)
    return FilterCase(placed=placed, incoming=_pod(draw, specs, "new", uid="uid-new", may_terminate=False))


def _node(draw: st.DrawFn, name: str) -> Node:
    labels = draw(NODE_LABELS) if draw(RARELY) else {**draw(NODE_LABELS), HOSTNAME: name}
    return node(name, labels=labels, taints=(RED,) if draw(SOMETIMES) else ())


def _pod(draw: st.DrawFn, specs: st.SearchStrategy[PodSpec], name: str, *, uid: str, may_terminate: bool = True) -> Pod:
    """Return a pod, perhaps terminating, in one of four namespaces, one of them unknown to the cluster."""
    deleted = "2026-01-01T00:00:00Z" if may_terminate and draw(RARELY) else None
    metadata = ObjectMeta(
        name=name, namespace=draw(WHERE), uid=uid, labels=draw(POD_LABELS), deletion_timestamp=deleted
    )
    return Pod(metadata=metadata, spec=draw(specs))
