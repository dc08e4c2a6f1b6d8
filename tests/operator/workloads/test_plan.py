"""The groups that a Workload asks for, and the plan to create them."""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from cpg_api.manifests import to_manifest
from cpg_api.meta import OwnerReference
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_api.scheduling.names import API_VERSION, DERIVED_FROM, EXPECTED_PODS, FINALIZER
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.policies import PodGroupResourceClaim
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload
from cpg_engine.testing.builders import (
    constraints,
    disruption,
    inner_policy,
    inner_template,
    leaf_policy,
    leaf_template,
    pod_group,
    workload,
)
from cpg_operator.view.tree_index import owns
from cpg_operator.workloads.plan import (
    MAX_GROUPS,
    GroupPlan,
    ObstacleReason,
    count_groups,
    desired_groups,
    plan_groups,
)

Template = PodGroupTemplate | CompositePodGroupTemplate
LATER = "2026-01-01T00:00:01Z"


def leaf(name: str, *, replicas: int | None = None, gang: int | None = 1) -> PodGroupTemplate:
    """Return a template of PodGroups with replicas."""
    return replace(leaf_template(name, gang=gang), replicas=replicas)


def inner(
    name: str, *children: Template, replicas: int | None = None, gang: int | None = 1
) -> CompositePodGroupTemplate:
    """Return a template of CompositePodGroups with replicas."""
    return replace(inner_template(name, children, gang=gang), replicas=replicas)


def named(*templates: Template) -> Workload:
    """Return the Workload ``w`` over its top templates."""
    return workload(templates)


def groups_of(source: Workload, *, native: bool = False) -> list[Group]:
    """Return the groups that a Workload asks for."""
    return list(desired_groups(source, api_version=API_VERSION, native=native))


def planned(
    source: Workload,
    there: Iterable[Group],
    *,
    native: bool = False,
    served: Collection[type] = (PodGroup, CompositePodGroup),
) -> GroupPlan:
    """Return the plan where some groups exist."""
    groups: Mapping[GroupKey, Group] = {key_of(group): group for group in there}
    made = [key for key, group in groups.items() if group.spec.workload_ref is not None]
    return plan_groups(source, groups, made, api_version=API_VERSION, native=native, served=served)


def terminating(group: Group) -> Group:
    """Return the group as one that is being deleted."""
    return replace(group, metadata=replace(group.metadata, deletion_timestamp=LATER))


TREE = named(inner("root", inner("replica", leaf("workers", gang=4), leaf("driver"), replicas=2)))


def test_a_whole_tree_is_planned_with_parents_before_children() -> None:
    """Every group below a replica carries the replica's number."""
    made = [(group.kind, group.metadata.name, group.spec.parent_composite_pod_group_name) for group in groups_of(TREE)]
    assert made == [
        ("CompositePodGroup", "w-root", None),
        ("CompositePodGroup", "w-replica-0", "w-root"),
        ("CompositePodGroup", "w-replica-1", "w-root"),
        ("PodGroup", "w-workers-0", "w-replica-0"),
        ("PodGroup", "w-workers-1", "w-replica-1"),
        ("PodGroup", "w-driver-0", "w-replica-0"),
        ("PodGroup", "w-driver-1", "w-replica-1"),
    ]
    assert count_groups(TREE) == 7


def test_replicas_multiply_and_a_single_one_has_its_number_too() -> None:
    """Only an empty field adds no number; zero replicas have nothing below them either."""
    source = named(
        inner("a", leaf("p", replicas=2), leaf("none", replicas=0), replicas=1), inner("b", leaf("q"), replicas=0)
    )
    assert [group.metadata.name for group in groups_of(source)] == ["w-a-0", "w-p-0-0", "w-p-0-1"]
    assert count_groups(source) == 3


def test_flat_templates_give_groups_without_a_parent() -> None:
    """Each is the root of its own tree."""
    made = groups_of(named(leaf("a"), leaf("b", replicas=2)))
    assert [group.metadata.name for group in made] == ["w-a", "w-b-0", "w-b-1"]
    assert {group.spec.parent_composite_pod_group_name for group in made} == {None}


def test_every_field_of_a_template_is_copied() -> None:
    """And the group names its template."""
    template = PodGroupTemplate(
        name="t",
        scheduling_policy=leaf_policy(3),
        scheduling_constraints=constraints("rack", "row"),
        resource_claims=(PodGroupResourceClaim(name="gpus", resource_claim_name="shared"),),
        disruption_mode=disruption(all_=True),
        priority_class_name="high",
        priority=1000,
        preemption_policy="Never",
    )
    above = CompositePodGroupTemplate(
        name="top",
        scheduling_policy=inner_policy(1),
        scheduling_constraints=constraints("block"),
        disruption_mode=disruption(all_=True),
        priority_class_name="high",
        priority=1000,
        preemption_policy="Never",
        pod_group_templates=(template,),
    )
    root, group = (to_manifest(one)["spec"] for one in groups_of(named(above)))
    shared = {
        "disruptionMode": {"all": {}},
        "priorityClassName": "high",
        "priority": 1000,
        "preemptionPolicy": "Never",
    }
    assert root == shared | {
        "workloadRef": {"workloadName": "w", "templateName": "top"},
        "schedulingPolicy": {"gang": {"minGroupCount": 1}},
        "schedulingConstraints": {"topology": [{"key": "block"}]},
    }
    assert group == shared | {
        "parentCompositePodGroupName": "w-top",
        "workloadRef": {"workloadName": "w", "templateName": "t"},
        "schedulingPolicy": {"gang": {"minCount": 3}},
        "schedulingConstraints": {"topology": [{"key": "rack"}], "preferredTopology": [{"key": "row"}]},
        "resourceClaims": [{"name": "gpus", "resourceClaimName": "shared"}],
    }


def test_every_group_is_owned_by_the_workload_and_protected_from_the_start() -> None:
    """The garbage collector deletes them with it; native PodGroups are protected by Kubernetes itself."""
    owner = OwnerReference(
        api_version=API_VERSION,
        kind="Workload",
        name="w",
        uid=TREE.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )
    assert {group.metadata.owner_references for group in groups_of(TREE)} == {(owner,)}
    assert {group.metadata.finalizers for group in groups_of(TREE)} == {(FINALIZER,)}
    native = {(group.kind, group.metadata.finalizers) for group in groups_of(TREE, native=True)}
    assert native == {("CompositePodGroup", (FINALIZER,)), ("PodGroup", ())}


def test_names_that_could_be_confused_are_hashed() -> None:
    """The numbered groups of template ``a`` beside a template ``a-0``."""
    first, second, plain = groups_of(named(leaf("a", replicas=2), leaf("a-0")))
    assert plain.metadata.name == "w-a-0"
    assert first.metadata.name.startswith("w-a-0-")
    assert second.metadata.name.startswith("w-a-1-")


def test_missing_groups_are_created_and_existing_ones_kept() -> None:
    """Such as one of the seven that a user has deleted."""
    there = groups_of(TREE)
    assert planned(TREE, []).create == tuple(there)
    assert planned(TREE, there) == GroupPlan(wanted=7)
    assert planned(TREE, there[3:]).missing == 3
    assert planned(TREE, there[:3] + there[4:]).create == (there[3],)


def test_a_changed_minimum_resizes_the_group() -> None:
    """Both kinds of group, also where a user has changed the group and not the template."""
    there = groups_of(TREE)
    bigger = named(inner("root", inner("replica", leaf("workers", gang=5), leaf("driver"), replicas=2, gang=2)))
    resized = planned(bigger, there).resize
    assert {(group.metadata.name, group.minimum) for group in resized} == {
        ("w-replica-0", 2),
        ("w-replica-1", 2),
        ("w-workers-0", 5),
        ("w-workers-1", 5),
    }
    assert planned(TREE, resized).resize == tuple(there[1:5])


def test_the_native_api_cannot_change_a_group_count() -> None:
    """This is an obstacle; its PodGroups are resized."""
    bigger = named(inner("root", inner("replica", leaf("workers", gang=5), leaf("driver"), replicas=2), gang=2))
    found = planned(bigger, groups_of(TREE, native=True), native=True)
    assert [group.metadata.name for group in found.resize] == ["w-workers-0", "w-workers-1"]
    assert [(one.reason, "w-root has minGroupCount 1, its template 2" in one.message) for one in found.obstacles] == [
        (ObstacleReason.IMMUTABLE, True)
    ]


def test_surplus_replicas_are_removed_once() -> None:
    """With all groups below them; one that is being deleted already is not deleted again."""
    smaller = named(inner("root", inner("replica", leaf("workers", gang=4), leaf("driver"), replicas=1)))
    there = groups_of(TREE)
    assert [group.metadata.name for group in planned(smaller, there).remove] == [
        "w-replica-1",
        "w-driver-1",
        "w-workers-1",
    ]
    there[2] = terminating(there[2])
    assert [group.metadata.name for group in planned(smaller, there).remove] == ["w-driver-1", "w-workers-1"]


def test_a_foreign_group_is_never_touched() -> None:
    """Neither one that names the Workload and is not owned by it, nor one that another controller owns."""
    foreign = pod_group("w-a", workload="w", template="a", gang=9)
    controlled = replace(
        foreign,
        metadata=replace(foreign.metadata, owner_references=(OwnerReference(uid="x", name="w", controller=True),)),
    )
    for there in (foreign, controlled, terminating(foreign)):
        found = planned(named(leaf("a")), [there])
        assert (found.create, found.resize, found.remove) == ((), (), ())
        assert [one.reason for one in found.obstacles] == [ObstacleReason.CONFLICT]
        assert "PodGroup default/w-a exists" in found.obstacles[0].message
    assert planned(named(leaf("b")), [foreign]).remove == ()


def test_a_group_that_is_being_deleted_is_waited_for() -> None:
    """A user has deleted it, or the Workload was created again and the groups of the old one still exist."""
    source = named(leaf("a"))
    (there,) = groups_of(source)
    found = planned(source, [terminating(there)])
    assert [one.reason for one in found.obstacles] == [ObstacleReason.BEING_DELETED]
    successor = replace(source, metadata=replace(source.metadata, uid="uid-new"))
    found = planned(successor, [there])
    assert (found.create, [one.reason for one in found.obstacles]) == ((), [ObstacleReason.BEING_DELETED])
    assert owns(source, there)
    assert not owns(successor, there)


def derived(source: Workload, uid: str = "uid-new") -> Workload:
    """Return the Workload as one that the operator has made for an owner."""
    return replace(source, metadata=replace(source.metadata, uid=uid, annotations={DERIVED_FROM: "jobset/train"}))


def names(groups: Iterable[Group]) -> list[str]:
    """Return the names of some groups."""
    return [group.metadata.name for group in groups]


def test_groups_of_an_owner_are_replaced_with_their_workload() -> None:
    """Each is deleted once, and created again as soon as it is gone. No group is an obstacle meanwhile."""
    other = derived(named(inner("root", leaf("workers", gang=5))))
    there = groups_of(derived(named(inner("root", leaf("workers", gang=4), leaf("driver"))), "uid-old"))
    found = planned(other, there)
    assert names(found.remove) == ["w.root", "w.driver", "w.workers"]
    assert (names(found.replace), found.obstacles) == (["w.root", "w.workers"], ())
    found = planned(other, map(terminating, there))
    assert (found.remove, found.create, names(found.replace)) == ((), (), ["w.root", "w.workers"])
    found = planned(other, [terminating(one) for one in there if "workers" in one.metadata.name])
    assert (names(found.create), names(found.replace)) == (["w.root"], ["w.workers"])
    assert names(planned(other, []).create) == ["w.root", "w.workers"]
    assert planned(other, groups_of(other)) == GroupPlan(wanted=2)


def test_nothing_is_created_below_a_group_that_is_replaced() -> None:
    """Its children are created with the new one."""
    source = derived(named(inner("root", leaf("a"))))
    (root, _) = groups_of(source)
    found = planned(source, [terminating(root)])
    assert (found.create, names(found.replace)) == ((), ["w.root"])


def test_a_native_group_count_of_an_owner_is_changed_by_another_group() -> None:
    """The built-in API cannot change it; PodGroups are resized."""
    bigger = derived(named(inner("root", leaf("a", gang=2), gang=3)), "u")
    there = groups_of(derived(named(inner("root", leaf("a", gang=1), gang=2)), "u"), native=True)
    found = planned(bigger, there, native=True)
    assert (names(found.remove), names(found.replace)) == (["w.root"], ["w.root"])
    assert (names(found.resize), found.obstacles) == (["w.a"], ())
    assert names(planned(bigger, there).resize) == ["w.root", "w.a"]


def test_a_foreign_group_in_the_tree_of_an_owner_is_a_conflict() -> None:
    """It is not replaced, even while it is being deleted."""
    source = derived(named(leaf("a")))
    foreign = pod_group("w.a", workload="w", template="a")
    for there in (foreign, terminating(foreign)):
        found = planned(source, [there])
        assert (found.remove, found.replace) == ((), ())
        assert [one.reason for one in found.obstacles] == [ObstacleReason.CONFLICT]


def test_nothing_is_created_below_a_group_that_is_being_deleted() -> None:
    """A new child would hold the old parent for ever; other branches are not concerned."""
    root, first, second, *leaves = groups_of(TREE)
    found = planned(TREE, [terminating(root)])
    assert (found.create, found.missing, len(found.obstacles)) == ((), 6, 1)
    found = planned(TREE, [root, terminating(first), leaves[0]])
    assert [group.metadata.name for group in found.create] == ["w-replica-1", "w-workers-1", "w-driver-1"]
    assert planned(TREE, [root, terminating(first), second, *leaves]).create == ()


def test_a_mistyped_digit_does_not_fill_the_cluster() -> None:
    """Nothing is created, and the count takes no time."""
    replicas = 1000
    source = named(
        inner("a", inner("b", inner("c", leaf("p"), replicas=replicas), replicas=replicas), replicas=replicas)
    )
    found = planned(source, [])
    assert found.create == ()
    assert found.wanted == count_groups(source) == 2 * 10**9 + 10**6 + 10**3
    assert [one.reason for one in found.obstacles] == [ObstacleReason.TOO_MANY_GROUPS]
    assert count_groups(named(leaf("a", replicas=MAX_GROUPS))) == MAX_GROUPS


def test_a_kind_that_is_not_served_is_one_obstacle_and_other_groups_are_created() -> None:
    """A group waits with its parent; once all kinds are served, the whole tree is created."""
    source = named(leaf("flat"), inner("root", leaf("below", replicas=3), replicas=2))
    found = planned(source, [], served=(PodGroup,))
    assert [group.metadata.name for group in found.create] == ["w-flat"]
    assert (found.wanted, found.missing, found.needs_polling) == (9, 9, False)
    (obstacle,) = found.obstacles
    assert obstacle.reason is ObstacleReason.NOT_SERVED
    assert obstacle.message == (
        "the API server serves no CompositePodGroups: neither they nor the groups below them are created"
    )
    assert len(planned(source, []).create) == 9


def test_groups_expect_the_pods_of_their_template() -> None:
    """Those of their own number come first; composite groups have no pods."""
    text = '{"a": [{"count": 2}], "b": [{"count": 3}], "b.1": [{"count": 4}], "top": [{"count": 5}]}'
    source = with_expected(named(inner("top", leaf("a"), leaf("b", replicas=2), leaf("c"))), text)
    found = {group.metadata.name: group.metadata.annotations.get(EXPECTED_PODS) for group in groups_of(source)}
    assert found == {
        "w-top": None,
        "w-a": '[{"count": 2}]',
        "w-b-0": '[{"count": 3}]',
        "w-b-1": '[{"count": 4}]',
        "w-c": None,
    }


def test_groups_that_expect_others_are_changed() -> None:
    """Other annotations stay, and what users have written where the template says nothing."""
    before = [
        replace(group, metadata=replace(group.metadata, annotations={"x": "y"}))
        for group in groups_of(named(leaf("a")))
    ]
    source = with_expected(named(leaf("a")), '{"a": [{"count": 2}]}')
    (changed,) = planned(source, before).resize
    assert changed.metadata.annotations == {"x": "y", EXPECTED_PODS: '[{"count": 2}]'}
    assert planned(source, [changed]).resize == ()
    assert planned(named(leaf("a")), [changed]).resize == ()


def with_expected(source: Workload, text: str) -> Workload:
    """Return a Workload that expects pods by template."""
    return replace(source, metadata=replace(source.metadata, annotations={EXPECTED_PODS: text}))
