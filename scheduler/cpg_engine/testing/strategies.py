"""Hypothesis strategies for small clusters with a tree, small enough for the oracle to try everything.

Names, labels and sizes come from few values each, so that what is generated competes and ties. The parts are constants,
since making a strategy costs more than drawing from it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm, TopologySpreadConstraint
from cpg_api.core.node import Node, Taint
from cpg_api.core.pod import Container, ContainerPort, Pod, PodSpec, Toleration
from cpg_api.meta import LabelSelector
from cpg_api.scheduling.forest import Forest, Group, key_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_engine.testing.oracle import Situation

USUAL = 100
"""``max_examples`` of the default profile."""

RED = Taint(key="team", value="red", effect="NoSchedule")
BEARS_RED = Toleration(key="team", operator="Equal", value="red")

ALL_PODS = LabelSelector(match_expressions=())
AWAY = PodAffinityTerm(label_selector=ALL_PODS, topology_key="rack")
NEAR_WEB = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": "web"}), topology_key="zone")
SPREAD = TopologySpreadConstraint(topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=ALL_PODS)

LABELS = st.sampled_from(
    [
        {key: value for key, value in (("zone", zone), ("rack", rack), ("disk", disk)) if value}
        for zone in ("z1", "z2", None)
        for rack in ("r1", "r2", None)
        for disk in ("ssd", None)
    ]
)
SHAPES = st.sampled_from(
    [
        pod("", cpu=cpu, memory=memory, node_selector=selector, tolerations=tolerations).spec
        for tolerations in (None, (BEARS_RED,))
        for selector in (None, None, {"disk": "ssd"})
        for memory in (None, "1Gi")
        for cpu in (1, 1, 2, None)
    ]
)
DEPENDENT_SPECS: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {},
        {"containers": (Container(ports=(ContainerPort(host_port=80),)),)},
        {
            "affinity": Affinity(
                pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(AWAY,))
            )
        },
        {"topology_spread_constraints": (SPREAD,)},
        {
            "affinity": Affinity(
                pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(NEAR_WEB,))
            )
        },
    ]
)
WEB = st.sampled_from([{}, {}, {"app": "web"}])
"""Labels of pods that depend on other pods; some are selected by others."""
SIZES = st.sampled_from([(cpu, memory) for memory in ("2Gi", "4Gi", None) for cpu in range(5)])
PODS = st.sampled_from([110, 3, 1])
MOODS = st.sampled_from([*[""] * 7, "tainted", "tainted", "cordoned"])
FEW, SOME, NODES = st.integers(0, 2), st.sampled_from([0, 1, 2, 2, 3, 3, 4]), st.sampled_from([0, 1, 2, 3, 3, 4, 4, 5])
CHILDREN, GRANDCHILDREN = st.integers(0, 3), st.integers(0, 2)
RUNS = st.sampled_from([*[False] * 7, True])
CONSTRAINTS = st.sampled_from(
    [(key, preferred) for key in (None, None, "zone", "rack") for preferred in (None, None, None, "zone", "rack")]
)
GANGS = st.sampled_from([None, 1, 1, 2, 2, 3])
INNER_GANGS = {number: st.sampled_from([None, *range(1, number + 1)]) for number in (1, 2, 3)}


def cases(number: int) -> settings:
    """Return settings for a number of cases: always the same ones, unless a profile asks for more than usual."""
    scale = max(settings().max_examples // USUAL, 1)
    return settings(max_examples=number * scale, derandomize=scale == 1, deadline=None, database=None)


def draw_node(draw: st.DrawFn, name: str) -> Node:
    """Return a node of that name."""
    (cpu, memory), mood = draw(SIZES), draw(MOODS)
    return node(
        name,
        cpu=cpu,
        memory=memory,
        pods=draw(PODS),
        labels=draw(LABELS),
        taints=(RED,) if mood == "tainted" else (),
        unschedulable=mood == "cordoned",
    )


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Node, ...]:
    """Return up to five nodes."""
    return tuple(draw_node(draw, f"n{number}") for number in range(draw(NODES)))


@st.composite
def trees(draw: st.DrawFn, depth: int = 3) -> tuple[Group, ...]:
    """Return the groups of a tree called ``g``, parents first."""
    found: list[Group] = []

    def grow(name: str, parent: str | None, levels: int) -> None:
        key, preferred = draw(CONSTRAINTS)
        children = draw(GRANDCHILDREN if parent else CHILDREN) if levels > 1 else 0
        if not children:
            found.append(pod_group(name, gang=draw(GANGS), parent=parent, key=key, preferred=preferred))
            return
        gang = draw(INNER_GANGS[children])
        found.append(composite(name, gang=gang, parent=parent, key=key, preferred=preferred))
        for number in range(children):
            grow(f"{name}{number}", name, levels - 1)

    grow("g", None, depth)
    return tuple(found)


def situation(nodes: Sequence[Node], groups: Sequence[Group], pods: Sequence[Pod]) -> Situation:
    """Return the situation of these objects; the first group is the root."""
    return Situation(nodes=tuple(nodes), pods=tuple(pods), tree=Forest.of(groups).tree_of(key_of(groups[0])))


@st.composite
def situations(draw: st.DrawFn, *, alike: bool = False, dependent: bool = False, most_pods: int = 8) -> Situation:
    """Return a cluster and a tree with some pods, a few of which run already.

    ``alike`` makes one gang of identical pods; ``dependent`` makes pods that depend on other pods, which the oracle
    does not model.
    """
    cluster = draw(clusters())
    groups = draw(trees(1 if alike else 3))
    leaves = [group.metadata.name for group in groups if isinstance(group, PodGroup)]
    names = [(leaf, f"{leaf}-p{number}") for leaf in leaves for number in range(draw(SOME))][:most_pods]
    shape = draw(SHAPES) if alike else None
    members = [_member(draw, name, leaf, shape) for leaf, name in names]
    if dependent:
        members = [
            labelled(replace(found, spec=replace(found.spec, **draw(DEPENDENT_SPECS))), draw(WEB)) for found in members
        ]
    strangers = [_shaped(draw(SHAPES), pod(f"other{number}", node_name=f"n{number}")) for number in range(draw(FEW))]
    return situation(cluster, groups, (*members, *strangers))


def labelled(found: Pod, labels: Mapping[str, str]) -> Pod:
    """Return the pod with more labels."""
    return replace(found, metadata=replace(found.metadata, labels={**found.metadata.labels, **labels}))


def _member(draw: st.DrawFn, name: str, leaf: str, shape: PodSpec | None) -> Pod:
    """Return a member that is pending, or runs on a node, which may be gone."""
    node_name = f"n{draw(NODES)}" if draw(RUNS) else ""
    return _shaped(shape or draw(SHAPES), pod(name, group=leaf, node_name=node_name))


def _shaped(shape: PodSpec, found: Pod) -> Pod:
    """Return the pod with that spec, pending or running as before."""
    return replace(found, spec=replace(shape, node_name=found.spec.node_name))
