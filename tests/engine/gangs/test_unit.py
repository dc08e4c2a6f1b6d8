"""Units: trees of groups, or single pods, as the search sees them."""

from msgspec.structs import replace

from cpg_api.core.affinity import TopologySpreadConstraint
from cpg_api.core.pod import Pod, PodStatus
from cpg_api.meta import LabelSelector
from cpg_api.scheduling.forest import Forest, Group, GroupKey, key_of
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.gangs.unit import GroupPods, Unit, pod_unit, tree_unit
from cpg_engine.testing.builders import composite, metadata, pod, pod_group

ROOT = composite("root", gang=2, key="block")
LEFT = composite("left", gang=None, parent="root")
LEAF_A = pod_group("a", gang=3, parent="left", key="rack", preferred="switch")
LEAF_B = pod_group("b", gang=None, parent="root")


def unit_of(
    groups: list[Group], members: dict[GroupKey, GroupPods] | None = None, ledger: Ledger | None = None
) -> Unit:
    """Return the unit of the only tree of the groups."""
    (tree,) = Forest.of(groups).trees()
    return tree_unit(tree, members or {}, ledger or Ledger())


def finished(found: Pod) -> Pod:
    """Return the pod as it is when it has succeeded."""
    return replace(found, status=PodStatus(phase="Succeeded"))


def test_a_pod_is_a_tree_of_one() -> None:
    """A pod without a group is a unit that needs exactly that pod."""
    ledger = Ledger()
    (found,) = pod_unit(pod("p", cpu=1), ledger).nodes
    assert (found.minimum, found.end, found.leaf, found.children) == (1, 1, True, ())
    assert tuple(found.key) == ("Pod", "default", "p")
    assert [ledger.class_of(pod("p", cpu=1))] == [member.pod_class for member in found.pending]


def test_parents_stand_before_children() -> None:
    """Every node has its children and the end of its descendants."""
    nodes = unit_of([LEAF_B, LEAF_A, LEFT, ROOT]).nodes
    assert [node.key.name for node in nodes] == ["root", "b", "left", "a"]
    assert [node.children for node in nodes] == [(1, 2), (), (3,), ()]
    assert [node.end for node in nodes] == [4, 2, 4, 4]
    assert [node.leaf for node in nodes] == [False, True, False, True]


def test_minimums_and_keys_are_those_of_the_groups() -> None:
    """A basic group needs one; the labels are those of the first constraint of either kind."""
    nodes = unit_of([LEAF_B, LEAF_A, LEFT, ROOT]).nodes
    assert [node.minimum for node in nodes] == [2, 1, 1, 3]
    assert [node.required for node in nodes] == ["block", None, None, "rack"]
    assert [node.preferred for node in nodes] == [None, None, None, "switch"]


def test_every_group_needs_one_pod() -> None:
    """A minimum that the API server would not accept counts as one."""
    for group in (pod_group("g", gang=-3), pod_group("g", gang=0)):
        assert [node.minimum for node in unit_of([group]).nodes] == [1]


def test_pods_are_in_scheduling_order() -> None:
    """The more important first, then the older, then by namespace and name, in whatever order they come."""
    pods = [
        pod("d", priority=None),
        pod("c", meta=metadata("c", created="2025-01-01T00:00:00Z")),
        pod("b"),
        pod("a", meta=metadata("a", created="2027-01-01T00:00:00Z")),
        pod("z", priority=5),
    ]
    group = pod_group("g")
    for given in (pods, pods[::-1]):
        (found,) = unit_of([group], {key_of(group): GroupPods(pending=given)}).nodes
        assert [member.uid.removeprefix("uid-default-") for member in found.pending] == ["z", "c", "b", "d", "a"]


def test_scheduled_members_count_and_running_ones_have_a_node() -> None:
    """A finished member counts towards the minimum, too, but is on no node any more."""
    group = pod_group("g", gang=3)
    settled = (pod("p", node_name="n0"), finished(pod("q", node_name="n1")))
    (found,) = unit_of([group], {key_of(group): GroupPods(pending=(pod("r"),), scheduled=settled)}).nodes
    assert (len(found.pending), found.scheduled, found.member_nodes) == (1, 2, ("n0",))


def test_invalid_pods_are_reported_and_the_others_are_scheduled() -> None:
    """A malformed request and an unknown operator are reported with their path."""
    group = pod_group("g")
    spread = TopologySpreadConstraint(max_skew=0, topology_key="zone", when_unsatisfiable="DoNotSchedule")
    pods = (pod("p", cpu="?"), pod("q", cpu=1), pod("r", topology_spread_constraints=(spread,)))
    (found,) = unit_of([group], {key_of(group): GroupPods(pending=pods)}).nodes
    assert [member.uid for member in found.pending] == ["uid-default-q"]
    assert [one.uid for one in found.invalid] == ["uid-default-p", "uid-default-r"]
    assert found.invalid[0].problems[0].path == "spec.containers[0].resources.requests[cpu]"


def test_a_selector_of_a_later_pod_splits_all_classes() -> None:
    """A pod that selects by a label gives the pods before it another class, in the same unit."""
    group = pod_group("g")
    selector = LabelSelector({"app": "a"})
    spread = TopologySpreadConstraint(1, "zone", "DoNotSchedule", selector)
    pods = (
        pod("p", priority=9, meta=metadata("p", app="a")),
        pod("q", meta=metadata("q", app="a"), topology_spread_constraints=(spread,)),
    )
    (found,) = unit_of([group], {key_of(group): GroupPods(pending=pods)}).nodes
    assert [dict(member.pod_class.labels) for member in found.pending] == [{"app": "a"}] * 2


def test_a_group_without_members_waits_for_them() -> None:
    """A group that has no entry has no pods."""
    (found,) = unit_of([pod_group("g", gang=2)]).nodes
    assert (found.pending, found.invalid, found.scheduled, found.member_nodes) == ((), (), 0, ())


def test_expected_pods_count_for_the_minimum_of_the_first() -> None:
    """They come last, and the group needs room for all of its pods; later it needs no more than its own minimum."""
    key, leader, follower = key_of(LEAF_B), pod("leader", cpu=1), pod("f", cpu=1)
    ledger = Ledger()
    (first,) = unit_of([pod_group("b")], {key: GroupPods([leader], (), [follower], 2)}, ledger).nodes
    assert [(one.uid, one.is_expected) for one in first.pending] == [
        ("uid-default-leader", False),
        ("uid-default-f", True),
    ]
    assert first.minimum == 2
    (later,) = unit_of([pod_group("b")], {key: GroupPods([leader], (), [follower])}, ledger).nodes
    assert (later.minimum, len(later.pending)) == (1, 2)


def test_expected_pods_that_can_never_be_scheduled_are_left_out() -> None:
    """They are reported once they exist."""
    key = key_of(LEAF_B)
    members = {key: GroupPods([pod("leader")], (), [pod("f", cpu="x")], 2)}
    (found,) = unit_of([pod_group("b")], members).nodes
    assert (found.minimum, len(found.pending), found.invalid) == (1, 1, ())


def test_a_group_needs_its_children_without_pods_as_well() -> None:
    """Those that expect pods, as long as these need room."""
    children = [pod_group(name, parent="root") for name in "abc"]
    first, second = (key_of(child) for child in children[:2])
    members = {first: GroupPods([pod("leader")]), second: GroupPods((), (), [pod("f")], 1)}
    assert unit_of([composite("root"), *children], members).nodes[0].minimum == 2
    members[second] = replace(members[second], needed=0)
    assert unit_of([composite("root"), *children], members).nodes[0].minimum == 1
