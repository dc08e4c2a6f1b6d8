"""Hypothesis strategies for clusters in which a tree has to preempt, small enough to try every set of victims."""

from collections.abc import Collection, Iterator

import hypothesis.strategies as st
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import composite, metadata, node, pod, pod_group
from cpg_engine.testing.oracle import Situation
from cpg_engine.testing.scenario_forms import BudgetForm
from cpg_engine.testing.simulator import ClusterSimulator, RootUnit
from cpg_engine.testing.strategies import DEPENDENT_SPECS, WEB, labelled, situation, trees

PRIORITY = 10
"""The priority of the preemptor."""
RUNNING_GROUPS = {"solid": 1, "left": 0, "right": 0, "loose": 2}
"""The groups of running pods and their priorities; left and right are below a group that is evicted as a whole."""
NODE_LABELS: tuple[dict[str, str], ...] = (
    {},
    {"rack": "r1"},
    {"rack": "r2"},
    {"zone": "z1", "rack": "r1"},
    {"zone": "z1", "rack": "r2"},
    {"zone": "z2"},
)
NODE_SHAPES = st.sampled_from(
    [(cpu, pods, labels) for cpu in (1, 2, 2, 3) for pods in (110, 110, 2) for labels in NODE_LABELS]
)
NODES, MEMBERS, LOW = st.sampled_from([1, 2, 2, 3, 4]), st.integers(1, 3), st.integers(2, 6)
RUNNING_PODS = st.sampled_from(
    [
        (group, RUNNING_GROUPS[group] if group else priority, cpu, app)
        for group in (None, None, None, *RUNNING_GROUPS)
        for priority in (0, 0, 1, 1, 2, PRIORITY, 20)
        for cpu in (1, 1, 1, 2)
        for app in (None, None, "web")
    ]
)
WHERE = st.integers(0, 3)
STARTS = st.integers(1, 3)
SHARES: st.SearchStrategy[int | str] = st.sampled_from([1, 1, 2, "500m"])
ALONE = st.sampled_from([1, 2, 2, 3])
RUNS = st.sampled_from([*[None] * 12, 0, 1])
BUDGETS: st.SearchStrategy[dict[str, BudgetForm]] = st.sampled_from(
    [{}, {}, *({"web": BudgetForm({"app": "web"}, allowed)} for allowed in (0, 1, 2))]
)


class PreemptionSetup(Struct, frozen=True):
    """A tree or a pod that waits, and what runs, in groups of its own and covered by budgets."""

    situation: Situation
    others: tuple[Group, ...]
    budgets: dict[str, BudgetForm]
    alone: str = ""
    """The name of the pod that waits instead of the tree, if any."""

    def simulator(self, options: SearchOptions | None = None) -> ClusterSimulator:
        """Return a simulator with these objects."""
        simulator = ClusterSimulator.of(self.situation, options)
        for group in self.others:
            simulator.put_group(group)
        for name, budget in self.budgets.items():
            simulator.put_budget(name, budget)
        return simulator

    def root(self, simulator: ClusterSimulator) -> RootUnit | None:
        """Return the root that waits, if it can be decided about."""
        name = self.alone or self.situation.tree.nodes[0].key.name
        return next((root for root in simulator.roots() if root.name == name), None)

    def without(self, uids: Collection[str]) -> "PreemptionSetup":
        """Return the setup without some pods."""
        left = tuple(found for found in self.situation.pods if found.metadata.uid not in uids)
        return replace(self, situation=replace(self.situation, pods=left))

    def reversed(self) -> "PreemptionSetup":
        """Return the setup with all objects in reverse order."""
        return replace(
            self,
            situation=replace(self.situation, nodes=self.situation.nodes[::-1], pods=self.situation.pods[::-1]),
            others=self.others[::-1],
        )


@st.composite
def preemption_setups(
    draw: st.DrawFn, *, dependent: bool = False, alone: bool = False, depth: int = 3, most_pods: int = 5
) -> PreemptionSetup:
    """Return up to four nodes with up to six running pods, and a tree of small pods, or a single pod, that waits."""
    nodes = tuple(_node(draw, number) for number in range(draw(NODES)))
    running = [_running(draw, number, len(nodes), dependent=dependent) for number in range(draw(LOW))]
    groups = tuple(_with_priority(group) for group in draw(trees(1 if alone else depth)))
    if alone:
        members = [_dependent(draw, pod("alone", priority=PRIORITY, cpu=draw(ALONE)), dependent=dependent)]
    else:
        leaves = [group.metadata.name for group in groups if isinstance(group, PodGroup)]
        names = [(leaf, f"{leaf}-p{number}") for leaf in leaves for number in range(draw(MEMBERS))][:most_pods]
        members = [_member(draw, name, leaf, dependent=dependent) for leaf, name in names]
    others = (
        composite("tower", all_=True, priority=0),
        pod_group("left", parent="tower", priority=0),
        pod_group("right", parent="tower", priority=0),
        pod_group("solid", all_=True, priority=1),
        pod_group("loose", priority=2),
    )
    return PreemptionSetup(
        situation=situation(nodes, groups, (*members, *running)),
        others=others,
        budgets=draw(BUDGETS),
        alone="alone" if alone else "",
    )


def _node(draw: st.DrawFn, number: int) -> Node:
    cpu, pods, labels = draw(NODE_SHAPES)
    return node(f"n{number}", cpu=cpu, pods=pods, labels=labels)


def _with_priority(group: Group) -> Group:
    return replace(group, spec=replace(group.spec, priority=PRIORITY))


def _running(draw: st.DrawFn, number: int, nodes: int, *, dependent: bool) -> Pod:
    """Return a pod that runs on a node."""
    group, priority, cpu, app = draw(RUNNING_PODS)
    name = f"low{number}"
    labels = {**({POD_GROUP_LABEL: group} if group else {}), **({"app": app} if app else {})}
    meta = replace(metadata(name, created=f"2026-01-01T00:00:0{draw(STARTS)}Z"), labels=labels)
    found = pod(name, cpu=cpu, node_name=f"n{draw(WHERE) % nodes}", priority=priority, meta=meta)
    return _dependent(draw, found, dependent=dependent)


def _member(draw: st.DrawFn, name: str, leaf: str, *, dependent: bool) -> Pod:
    """Return a pod that waits, or runs already."""
    number = draw(RUNS)
    node_name = "" if number is None else f"n{number}"
    return _dependent(
        draw, pod(name, group=leaf, priority=PRIORITY, cpu=draw(SHARES), node_name=node_name), dependent=dependent
    )


def _dependent(draw: st.DrawFn, found: Pod, *, dependent: bool) -> Pod:
    """Return the pod, with a spec that depends on other pods if requested."""
    more = dict(draw(DEPENDENT_SPECS)) if dependent else {}
    ports = more.pop("containers", None)
    if ports:
        (main,) = found.spec.containers or ()
        more["containers"] = (replace(main, ports=ports[0].ports),)
    return labelled(replace(found, spec=replace(found.spec, **more)), draw(WEB) if dependent else {})


def subsets(numbers: int) -> Iterator[frozenset[int]]:
    """Yield all sets of the numbers below ``numbers``."""
    for bits in range(2**numbers):
        yield frozenset(number for number in range(numbers) if bits >> number & 1)
