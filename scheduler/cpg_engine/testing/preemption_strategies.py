"""Hypothesis strategies for clusters in which a tree has to preempt: small enough to try every set of victims."""

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
from cpg_engine.testing.strategies import SOCIAL, WEB, labelled, situation, trees

PRIORITY = 10
"""Of whoever preempts."""
WHOLE = {"solid": 1, "left": 0, "right": 0, "loose": 2}
"""The groups of those that run, and their priority; left and right are below one that goes as a whole."""
PLACES: tuple[dict[str, str], ...] = (
    {},
    {"rack": "r1"},
    {"rack": "r2"},
    {"zone": "z1", "rack": "r1"},
    {"zone": "z1", "rack": "r2"},
    {"zone": "z2"},
)
GROUND = st.sampled_from([(cpu, pods, labels) for cpu in (1, 2, 2, 3) for pods in (110, 110, 2) for labels in PLACES])
NODES, MEMBERS, LOW = st.sampled_from([1, 2, 2, 3, 4]), st.integers(1, 3), st.integers(2, 6)
KINDS = st.sampled_from(
    [
        (group, WHOLE[group] if group else priority, cpu, app)
        for group in (None, None, None, *WHOLE)
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
    """A tree or a pod that waits, and what runs: in groups of its own, and under budgets."""

    situation: Situation
    others: tuple[Group, ...]
    budgets: dict[str, BudgetForm]
    alone: str = ""
    """The name of the pod that waits instead of the tree, if there is one."""

    def stage(self, options: SearchOptions | None = None) -> ClusterSimulator:
        """Set the stage."""
        stage = ClusterSimulator.of(self.situation, options)
        for group in self.others:
            stage.put_group(group)
        for name, budget in self.budgets.items():
            stage.put_budget(name, budget)
        return stage

    def root(self, stage: ClusterSimulator) -> RootUnit | None:
        """Return what waits on the stage, if it can be decided about."""
        name = self.alone or self.situation.tree.nodes[0].key.name
        return next((root for root in stage.roots() if root.name == name), None)

    def without(self, uids: Collection[str]) -> "PreemptionSetup":
        """Return the crowd after some pods have gone."""
        left = tuple(found for found in self.situation.pods if found.metadata.uid not in uids)
        return replace(self, situation=replace(self.situation, pods=left))

    def turned(self) -> "PreemptionSetup":
        """Return the crowd told the other way round."""
        return replace(
            self,
            situation=replace(self.situation, nodes=self.situation.nodes[::-1], pods=self.situation.pods[::-1]),
            others=self.others[::-1],
        )


@st.composite
def crowds(
    draw: st.DrawFn, *, social: bool = False, alone: bool = False, depth: int = 3, most_pods: int = 5
) -> PreemptionSetup:
    """Return up to four nodes on which up to six pods run, and a tree of small pods, or a pod alone, that waits."""
    nodes = tuple(_ground(draw, number) for number in range(draw(NODES)))
    running = [_running(draw, number, len(nodes), social=social) for number in range(draw(LOW))]
    groups = tuple(_important(group) for group in draw(trees(1 if alone else depth)))
    if alone:
        members = [_social(draw, pod("alone", priority=PRIORITY, cpu=draw(ALONE)), social=social)]
    else:
        leaves = [group.metadata.name for group in groups if isinstance(group, PodGroup)]
        names = [(leaf, f"{leaf}-p{number}") for leaf in leaves for number in range(draw(MEMBERS))][:most_pods]
        members = [_member(draw, name, leaf, social=social) for leaf, name in names]
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


def _ground(draw: st.DrawFn, number: int) -> Node:
    cpu, pods, labels = draw(GROUND)
    return node(f"n{number}", cpu=cpu, pods=pods, labels=labels)


def _important(group: Group) -> Group:
    return replace(group, spec=replace(group.spec, priority=PRIORITY))


def _running(draw: st.DrawFn, number: int, nodes: int, *, social: bool) -> Pod:
    """Return a pod that runs somewhere."""
    group, priority, cpu, app = draw(KINDS)
    name = f"low{number}"
    labels = {**({POD_GROUP_LABEL: group} if group else {}), **({"app": app} if app else {})}
    meta = replace(metadata(name, created=f"2026-01-01T00:00:0{draw(STARTS)}Z"), labels=labels)
    found = pod(name, cpu=cpu, node_name=f"n{draw(WHERE) % nodes}", priority=priority, meta=meta)
    return _social(draw, found, social=social)


def _member(draw: st.DrawFn, name: str, leaf: str, *, social: bool) -> Pod:
    """Return a pod that waits, or runs already."""
    home = draw(RUNS)
    node_name = "" if home is None else f"n{home}"
    return _social(draw, pod(name, group=leaf, priority=PRIORITY, cpu=draw(SHARES), node_name=node_name), social=social)


def _social(draw: st.DrawFn, found: Pod, *, social: bool) -> Pod:
    """Return the pod as it looks out for others, if it is to."""
    more = dict(draw(SOCIAL)) if social else {}
    ports = more.pop("containers", None)
    if ports:
        (main,) = found.spec.containers or ()
        more["containers"] = (replace(main, ports=ports[0].ports),)
    return labelled(replace(found, spec=replace(found.spec, **more)), draw(WEB) if social else {})


def subsets(numbers: int) -> Iterator[frozenset[int]]:
    """Yield all sets of numbers below one."""
    for bits in range(2**numbers):
        yield frozenset(number for number in range(numbers) if bits >> number & 1)
