"""Nights are data: the same for the same seed, valid, told in words, and different enough from one another."""

from collections import Counter
from typing import get_args

import msgspec
import pytest

from cpg_simulation.nights import manifests
from cpg_simulation.nights.generator import generate
from cpg_simulation.nights.manifests import PRIORITIES
from cpg_simulation.nights.plan import (
    LEADER,
    PATIENCE_SECONDS,
    Fault,
    GroupPlan,
    NetworkFault,
    Night,
    NodeFault,
    ObjectFault,
    PodFault,
    ProcessFault,
    RequestFault,
    ServerFault,
    Submit,
    TreePlan,
    WorldFault,
)
from cpg_simulation.nights.trees import RELATIONS, TRAITS
from cpg_simulation.story import beginning, plan_lines

NIGHTS = [generate(seed) for seed in range(1, 201)]
TREES = [action.tree for night in NIGHTS for action in night.actions if isinstance(action, Submit)]


def levels(tree: TreePlan, parent: str = "") -> int:
    """Return how many levels of groups a tree has."""
    below = [group.name for group in tree.groups if group.parent == parent]
    return 1 + max(levels(tree, name) for name in below) if below else 0


def shape(tree: TreePlan) -> TreePlan:
    """Return a tree without its name, its priority and its devices, which each tree is given by itself."""
    groups = (
        msgspec.structs.replace(
            group, name=group.name.removeprefix(tree.name), parent=group.parent and "above", device=""
        )
        for group in tree.groups
    )
    return msgspec.structs.replace(tree, name="", priority="low", groups=tuple(groups), device="")


def test_a_seed_makes_one_night() -> None:
    """A night is the same each time, and as JSON."""
    for night in NIGHTS[:20]:
        assert generate(night.seed) == night
        assert msgspec.json.decode(msgspec.json.encode(night), type=Night) == night
    assert generate(1) != generate(2)


def test_nights_are_told_in_words() -> None:
    """Each action and each fault has a line."""
    for night in NIGHTS:
        assert len(plan_lines(night)) == len(night.actions) + len(night.faults) + 1
        assert str(night.seed) in next(beginning(night))


def test_everything_happens_before_the_calm() -> None:
    """No action and no fault lasts into the calm, and faults hit nodes that exist."""
    for night in NIGHTS:
        assert max([action.at for action in night.actions] + [fault.end for fault in night.faults]) <= night.seconds
        names = {node.name for node in night.nodes}
        assert all(fault.target in names for fault in night.faults if fault.target.startswith("node-"))


def test_some_leaders_are_stopped_for_less_than_their_lease() -> None:
    """They go on afterwards, and their watches are late."""
    stops = [fault for night in NIGHTS for fault in night.faults if fault.kind in {"stop", "suspend"}]
    assert sum(3.2 < fault.seconds <= 5.0 and fault.target == LEADER for fault in stops) > 10


def test_some_leaders_end_between_the_deletions_of_a_unit() -> None:
    """At the same time no controller creates new pods, and all trees are units."""
    found = [night for night in NIGHTS if any(fault.kind == "stop-controllers" for fault in night.faults)]
    assert len(found) > 10
    for night in found:
        assert sum(fault.trigger == "deletions" for fault in night.faults) in {3, 5}
        trees = [action.tree for action in night.actions if isinstance(action, Submit)]
        assert all(group.is_unit for tree in trees for group in tree.groups)


def test_nights_differ() -> None:
    """Trees of all depths, all traits, budgets, and each kind of fault occur in 200 nights, several times."""
    depths = Counter(levels(tree) for tree in TREES)
    assert min(depths[depth] for depth in range(5)) > 20
    traits = Counter(trait for tree in TREES for trait in tree.traits)
    assert min(traits[trait] for trait in TRAITS) > 20
    assert min(traits[trait] for trait in RELATIONS) > 10
    assert sum(tree.budget is not None for tree in TREES) > 20
    assert sum(tree.is_instantiated for tree in TREES) > 20
    kinds = Counter(fault.kind for night in NIGHTS for fault in night.faults)
    families = (RequestFault, ProcessFault, NetworkFault, ServerFault, NodeFault, PodFault, WorldFault, ObjectFault)
    assert set(kinds) == {kind for family in families for kind in get_args(family)}
    assert min(kinds.values()) >= 5
    triggers = Counter(fault.trigger for night in NIGHTS for fault in night.faults)
    assert min(triggers[trigger] for trigger in ("", "binds", "evictions", "nominations", "status", "leases")) > 10


def test_twins_come_last_and_are_more_important() -> None:
    """A twin has the shape of another tree, a higher priority, and a name of its own."""
    number = 0
    for night in NIGHTS:
        *trees, last = (action.tree for action in night.actions if isinstance(action, Submit))
        if last.name == "twin":
            number += 1
            less_important = [tree for tree in trees if PRIORITIES[tree.priority] < PRIORITIES[last.priority]]
            assert shape(last) in map(shape, less_important)
            assert all(group.name.startswith("twin") for group in last.groups)
    assert number > 20


def test_some_nights_have_devices() -> None:
    """About one in five: claims of pods and shared ones, and faults that hit the writes of claims."""
    nights = [night for night in NIGHTS if night.has_devices]
    assert len(nights) in range(25, 60)
    uses = Counter(group.device for tree in TREES for group in tree.groups)
    assert min(uses[use] for use in ("own", "shared")) > 15
    assert all(night.has_devices or not any(node.devices for node in night.nodes) for night in NIGHTS)
    assert sum(fault.trigger == "claims" for night in nights for fault in night.faults) > 20


def test_groups_are_valid() -> None:
    """A group has its parent, minimums can be met, and most groups below a unit are units."""
    wrong = 0
    for tree in TREES:
        groups = {group.name: group for group in tree.groups}
        for group in tree.groups:
            children = [one for one in tree.groups if one.parent == group.name]
            assert not group.parent or group.parent in groups
            assert (group.gang or 1) <= (len(children) if group.pods is None else group.pods)
            wrong += any(group.is_unit and not child.is_unit for child in children)
    assert wrong < len(TREES) / 20


def test_a_waiting_fault_ends_later() -> None:
    """A fault that waits for a request may begin as late as its patience ends."""
    fault = Fault(kind="kill", at=5, seconds=2, target="leader")
    assert fault.end == 7
    assert msgspec.structs.replace(fault, trigger="binds", delay=0.5).end == 7.5 + PATIENCE_SECONDS


LEAF = GroupPlan(name="t-top-0", parent="t-top", gang=1, pods=1)
TREE = TreePlan(name="t", priority="low", groups=(GroupPlan(name="t-top", gang=1), LEAF), is_instantiated=True)


def test_an_instantiated_tree_is_a_workload() -> None:
    """The user creates only the Workload, and the operator derives the names of the groups from those of templates."""
    ((resource, found),) = manifests.objects_of(TREE, "crd")
    assert resource.plural == "workloads"
    assert found["metadata"]["annotations"] == {"scheduling.cpg.dev/instantiate": "true"}
    (top,) = found["spec"]["compositePodGroupTemplates"]
    assert (top["name"], top["podGroupTemplates"][0]["name"]) == ("top", "top-0")


@pytest.mark.parametrize(
    ("trait", "field"),
    [
        ("select-disk", "nodeSelector"),
        ("apart", "affinity"),
        ("prefer-zone", "affinity"),
        ("tolerates", "tolerations"),
        ("gated", "schedulingGates"),
        ("alone", "affinity"),
        ("together", "affinity"),
        ("spread-nodes", "topologySpreadConstraints"),
        ("spread-zones", "topologySpreadConstraints"),
    ],
)
def test_traits_are_fields_of_pods(trait: str, field: str) -> None:
    """A trait adds its field to the pods of a tree."""
    found = msgspec.convert({"name": "t", "traits": [trait]}, TreePlan)
    assert field in manifests.pod(found, None, "p", "crd")["spec"]
    assert field not in manifests.pod(TreePlan(name="t"), None, "p", "crd")["spec"]


def test_pods_follow_those_of_the_first_leaf() -> None:
    """Those of the first leaf follow none."""
    leaves = [GroupPlan(name=name, gang=1, pods=1) for name in ("first", "second")]
    tree = TreePlan(name="t", groups=tuple(leaves), traits=("follow",))
    first, second = (manifests.pod(tree, leaf, "p", "native") for leaf in leaves)
    assert "affinity" not in first["spec"]
    (term,) = second["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"].items() <= first["metadata"]["labels"].items()
