"""The groups that a Workload asks for, and what has to be done to have them."""

from collections.abc import Collection, Iterable, Mapping

from msgspec.structs import replace

from cpg_api.manifests import to_manifest
from cpg_api.meta import OwnerReference
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_api.scheduling.names import API_VERSION, FINALIZER, INSTANTIATE
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
from cpg_operator.workloads.plan import MAX_GROUPS, Plan, Reason, count_groups, desired, is_marked, owns, plan

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
    return list(desired(source, api_version=API_VERSION, native=native))


def planned(
    source: Workload,
    there: Iterable[Group],
    *,
    native: bool = False,
    served: Collection[type] = (PodGroup, CompositePodGroup),
) -> Plan:
    """Return what has to be done where some groups are there."""
    groups: Mapping[GroupKey, Group] = {key_of(group): group for group in there}
    made = [key for key, group in groups.items() if group.spec.workload_ref is not None]
    return plan(source, groups, made, api_version=API_VERSION, native=native, served=served)


def leaving(group: Group) -> Group:
    """Return the group as one that is being deleted."""
    return replace(group, metadata=replace(group.metadata, deletion_timestamp=LATER))


TREE = named(inner("root", inner("replica", leaf("workers", gang=4), leaf("driver"), replicas=2)))


def test_a_tree_is_made_whole_with_parents_before_children() -> None:
    """Numbers of a level are carried down, so that every group below a replica is told apart by its number."""
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
    """Only an empty field adds no number; none at all means that there is nothing below either."""
    source = named(
        inner("a", leaf("p", replicas=2), leaf("none", replicas=0), replicas=1), inner("b", leaf("q"), replicas=0)
    )
    assert [group.metadata.name for group in groups_of(source)] == ["w-a-0", "w-p-0-0", "w-p-0-1"]
    assert count_groups(source) == 3


def test_flat_templates_make_groups_without_a_parent() -> None:
    """Each is the root of its own tree."""
    made = groups_of(named(leaf("a"), leaf("b", replicas=2)))
    assert [group.metadata.name for group in made] == ["w-a", "w-b-0", "w-b-1"]
    assert {group.spec.parent_composite_pod_group_name for group in made} == {None}


def test_every_field_of_a_template_is_copied() -> None:
    """And the group says which template it was made from."""
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
    """The garbage collector takes them when it goes; of the native ones Kubernetes protects PodGroups itself."""
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


def test_only_the_word_true_marks_a_workload() -> None:
    """As for every annotation that switches something on."""
    for value, expected in (("true", True), ("false", False), ("", False)):
        meta = replace(TREE.metadata, annotations={INSTANTIATE: value})
        assert is_marked(replace(TREE, metadata=meta)) is expected
    assert not is_marked(TREE)


def test_what_is_missing_is_created_and_what_is_there_is_left() -> None:
    """One of the seven was deleted by somebody."""
    there = groups_of(TREE)
    assert planned(TREE, []).create == tuple(there)
    assert planned(TREE, there) == Plan(wanted=7)
    assert planned(TREE, there[3:]).missing == 3
    assert planned(TREE, there[:3] + there[4:]).create == (there[3],)


def test_a_changed_minimum_is_followed() -> None:
    """Of both kinds of group, and back to the template's where somebody changed the group."""
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
    """That is told; its PodGroups follow."""
    bigger = named(inner("root", inner("replica", leaf("workers", gang=5), leaf("driver"), replicas=2), gang=2))
    found = planned(bigger, groups_of(TREE, native=True), native=True)
    assert [group.metadata.name for group in found.resize] == ["w-workers-0", "w-workers-1"]
    assert [(one.reason, "w-root has minGroupCount 1, its template 2" in one.message) for one in found.obstacles] == [
        (Reason.IMMUTABLE, True)
    ]


def test_surplus_replicas_are_removed_once() -> None:
    """With all that is below them; one that is on its way out already is not deleted again."""
    smaller = named(inner("root", inner("replica", leaf("workers", gang=4), leaf("driver"), replicas=1)))
    there = groups_of(TREE)
    assert [group.metadata.name for group in planned(smaller, there).remove] == [
        "w-replica-1",
        "w-driver-1",
        "w-workers-1",
    ]
    there[2] = leaving(there[2])
    assert [group.metadata.name for group in planned(smaller, there).remove] == ["w-driver-1", "w-workers-1"]


def test_a_group_of_somebody_else_is_never_touched() -> None:
    """Neither one that names the Workload without being owned by it, nor one that is owned by another controller."""
    stranger = pod_group("w-a", workload="w", template="a", gang=9)
    controlled = replace(
        stranger,
        metadata=replace(stranger.metadata, owner_references=(OwnerReference(uid="x", name="w", controller=True),)),
    )
    for there in (stranger, controlled, leaving(stranger)):
        found = planned(named(leaf("a")), [there])
        assert (found.create, found.resize, found.remove) == ((), (), ())
        assert [one.reason for one in found.obstacles] == [Reason.CONFLICT]
        assert "PodGroup default/w-a exists" in found.obstacles[0].message
    assert planned(named(leaf("b")), [stranger]).remove == ()


def test_a_group_that_is_on_its_way_out_is_waited_for() -> None:
    """Somebody deleted it, or the Workload was made anew and the old one's groups are still there."""
    source = named(leaf("a"))
    (there,) = groups_of(source)
    found = planned(source, [leaving(there)])
    assert [one.reason for one in found.obstacles] == [Reason.BEING_DELETED]
    successor = replace(source, metadata=replace(source.metadata, uid="uid-new"))
    found = planned(successor, [there])
    assert (found.create, [one.reason for one in found.obstacles]) == ((), [Reason.BEING_DELETED])
    assert owns(source, there)
    assert not owns(successor, there)


def test_nothing_is_made_below_a_group_that_is_in_the_way() -> None:
    """A new child would hold the old parent for ever; what is there already, and other branches, go on."""
    root, first, second, *leaves = groups_of(TREE)
    found = planned(TREE, [leaving(root)])
    assert (found.create, found.missing, len(found.obstacles)) == ((), 6, 1)
    found = planned(TREE, [root, leaving(first), leaves[0]])
    assert [group.metadata.name for group in found.create] == ["w-replica-1", "w-workers-1", "w-driver-1"]
    assert planned(TREE, [root, leaving(first), second, *leaves]).create == ()


def test_a_slip_of_a_digit_fills_no_cluster() -> None:
    """Nothing is made, and the number is told, which costs no time."""
    replicas = 1000
    source = named(
        inner("a", inner("b", inner("c", leaf("p"), replicas=replicas), replicas=replicas), replicas=replicas)
    )
    found = planned(source, [])
    assert found.create == ()
    assert found.wanted == count_groups(source) == 2 * 10**9 + 10**6 + 10**3
    assert [one.reason for one in found.obstacles] == [Reason.TOO_MANY_GROUPS]
    assert count_groups(named(leaf("a", replicas=MAX_GROUPS))) == MAX_GROUPS


def test_what_is_not_served_is_one_obstacle_and_all_else_is_made() -> None:
    """A group whose parent cannot be made waits with it; once all kinds are served, so is the whole tree."""
    source = named(leaf("flat"), inner("root", leaf("below", replicas=3), replicas=2))
    found = planned(source, [], served=(PodGroup,))
    assert [group.metadata.name for group in found.create] == ["w-flat"]
    assert (found.wanted, found.missing, found.is_silent) == (9, 9, False)
    (obstacle,) = found.obstacles
    assert obstacle.reason is Reason.NOT_SERVED
    assert obstacle.message == "the API server serves no CompositePodGroups: none is made, nor what stands below them"
    assert len(planned(source, []).create) == 9
