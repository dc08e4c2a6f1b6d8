"""What is refused at once, what is only warned of, and of what nothing is said."""

from msgspec.structs import replace

from cpg_api.admission import Review, review_group, review_workload
from cpg_api.scheduling.forest import Forest, Group, GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.validation import ValidationContext
from cpg_api.scheduling.workload import Workload
from cpg_engine.testing.builders import bare, composite, leaf_template, pod_group, priority_class, workload

CLASSES = PriorityClasses(by_name={"high": priority_class("high", 1000), "low": priority_class("low", 1)})


def asked(new: Group, *there: Group, source: Workload | None = None, classes: PriorityClasses = CLASSES) -> Review:
    """Return what is said of a new group beside those that are there."""
    workloads = {} if source is None else {("default", source.metadata.name): source}
    return review_group(Forest.of(there), new, ValidationContext(workloads=workloads, classes=classes))


def refused(review: Review) -> str:
    """Return the one reason for which something is refused, and nothing else is said."""
    (reason,) = review.refusals
    assert review.warnings == ()
    return reason


def warned(review: Review) -> str:
    """Return the one warning about something that is allowed."""
    (warning,) = review.warnings
    assert review.refusals == ()
    return warning


def named(name: str, parent: str, of: str) -> PodGroup:
    """Return a group with a priority class and no number."""
    group = pod_group(name, parent=parent, priority=None)
    return replace(group, spec=replace(group.spec, priority_class_name=of))


def test_nothing_is_said_of_what_is_right_or_only_waits() -> None:
    """Parents, Workloads and templates may come later, in any order."""
    assert asked(pod_group("a", parent="nobody")) == Review()
    assert asked(composite("root"), pod_group("a", parent="root")) == Review()


def test_a_cycle_is_refused() -> None:
    """By whoever closes it, and by a group that is its own parent."""
    assert "form a cycle: x -> y -> x" in refused(asked(composite("y", parent="x"), composite("x", parent="y")))
    assert "form a cycle" in refused(asked(composite("x", parent="x")))


def test_a_tree_too_deep_is_refused_from_above_and_from_below() -> None:
    """Whether the last level comes last, or one in between."""
    levels: list[Group] = [composite("1"), composite("2", parent="1"), composite("3", parent="2")]
    levels += [composite("4", parent="3")]
    assert "is on level 5 of its tree" in refused(asked(pod_group("5", parent="4"), *levels))
    leaf = pod_group("5", parent="4")
    assert "is on level 5 of its tree" in refused(asked(levels[1], levels[0], *levels[2:], leaf))
    assert asked(levels[3], *levels[:3]) == Review()


def test_edges_whose_ends_cannot_change_are_refused() -> None:
    """Another Workload than the parent's, or parts below what is disrupted as one."""
    other = refused(asked(pod_group("a", parent="root", workload="v"), composite("root", workload="w")))
    assert "all groups of a tree are made from one Workload" in other
    assert "what is disrupted as one" in refused(asked(composite("root", all_=True), pod_group("a", parent="root")))
    bare = pod_group("a", parent="root")
    bare = replace(bare, spec=replace(bare.spec, workload_ref=None))
    assert "has the parent CompositePodGroup default/root but no workloadRef" in refused(asked(bare, composite("root")))


def test_priorities_that_somebody_has_named_are_refused_where_they_differ() -> None:
    """Numbers and known classes; where nobody has named one, a default may come, and until then it is a warning."""
    root = composite("root", priority=1000)
    assert "has priority 5" in refused(asked(pod_group("a", parent="root", priority=5), root))
    assert "has priority 1," in refused(asked(named("a", "root", "low"), root))
    assert asked(named("a", "root", "high"), root) == Review()
    assert "has priority 0" in warned(asked(pod_group("a", parent="root", priority=None), root))
    assert "PriorityClass gone, which does not exist" in warned(asked(named("a", "root", "gone"), root))


def test_who_contradicts_the_class_that_it_names_is_refused() -> None:
    """Neither can change; where the class is the default, or the template's, another may come."""
    wrong = named("a", "root", "high")
    wrong = replace(wrong, spec=replace(wrong.spec, priority=5))
    assert "its PriorityClass high has 1000" in refused(asked(wrong))
    meek = pod_group("a", priority=None)
    meek = replace(meek, spec=replace(meek.spec, preemption_policy="Never"))
    usual = PriorityClasses(by_name={"usual": priority_class("usual", 1, default=True)})
    assert "its PriorityClass usual has PreemptLowerPriority" in warned(asked(meek, classes=usual))


def test_a_group_that_waits_for_its_template_is_welcome() -> None:
    """Nothing is known of it yet."""
    assert asked(bare(pod_group("a", parent="root")), composite("root", all_=True, priority=9)) == Review()


def test_what_cannot_be_known_is_not_said() -> None:
    """Who may not see the classes says nothing of them."""
    around = ValidationContext(workloads={}, classes=CLASSES)
    assert review_group(Forest.of([]), named("a", "root", "gone"), around, knows_classes=False) == Review()


def test_templates_are_warned_of() -> None:
    """The Workload may be made anew with the template in it."""
    source = workload([leaf_template("b")])
    group = pod_group("a", workload="w", template="a")
    assert "references template a, which Workload default/w does not have" in warned(asked(group, source=source))


def test_what_was_wrong_before_is_not_held_against_a_change() -> None:
    """Nor against a new group beside it."""
    there: list[Group] = [composite("root"), pod_group("a", parent="root", workload="v")]
    changed = pod_group("a", parent="root", workload="v", gang=7)
    assert asked(changed, *there) == Review()
    assert asked(pod_group("b", parent="root"), *there) == Review()
    moved = asked(pod_group("a", parent="other", workload="v"), *there, composite("other", workload="v"))
    assert moved == Review()


def test_a_workload_is_warned_of_the_groups_that_it_would_make_wrong() -> None:
    """Those made from it alone, and not of what is wrong already."""
    groups: list[Group] = [
        pod_group("a", workload="w", template="a"),
        pod_group("b", workload="w", template="b"),
        pod_group("c", workload="w", template="c"),
    ]
    before = workload([leaf_template("a"), leaf_template("b")])
    around = ValidationContext(workloads={("default", "w"): before}, classes=CLASSES)
    made = [GroupKey("PodGroup", "default", name) for name in "abc"]
    found = review_workload(Forest.of(groups), made, workload([leaf_template("a")]), around)
    assert "PodGroup default/b references template b" in warned(found)
    assert review_workload(Forest.of(groups), made, before, around) == Review()
