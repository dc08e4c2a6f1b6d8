"""Admission reviews: what is refused, what is a warning, and what passes silently."""

from msgspec.structs import replace

from cpg_api.admission import Review, review_group, review_workload
from cpg_api.scheduling.forest import Forest, Group, GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.validation import ValidationContext
from cpg_api.scheduling.workload import Workload
from cpg_engine.testing.builders import bare, composite, leaf_template, pod_group, priority_class, workload

CLASSES = PriorityClasses(by_name={"high": priority_class("high", 1000), "low": priority_class("low", 1)})


def review(new: Group, *there: Group, source: Workload | None = None, classes: PriorityClasses = CLASSES) -> Review:
    """Return the review of a new group beside existing ones."""
    workloads = {} if source is None else {("default", source.metadata.name): source}
    return review_group(Forest.of(there), new, ValidationContext(workloads=workloads, classes=classes))


def refusal(review: Review) -> str:
    """Return the only refusal of a review without warnings."""
    (reason,) = review.refusals
    assert review.warnings == ()
    return reason


def warning(review: Review) -> str:
    """Return the only warning of a review without refusals."""
    (warning,) = review.warnings
    assert review.refusals == ()
    return warning


def with_class(name: str, parent: str, of: str) -> PodGroup:
    """Return a group with a priority class and no number."""
    group = pod_group(name, parent=parent, priority=None)
    return replace(group, spec=replace(group.spec, priority_class_name=of))


def test_a_valid_or_waiting_group_passes_silently() -> None:
    """Parents, Workloads and templates may be created later, in any order."""
    assert review(pod_group("a", parent="absent")) == Review()
    assert review(composite("root"), pod_group("a", parent="root")) == Review()


def test_a_cycle_is_refused() -> None:
    """A group that closes a cycle is refused, and so is a group that is its own parent."""
    assert "form a cycle: x -> y -> x" in refusal(review(composite("y", parent="x"), composite("x", parent="y")))
    assert "form a cycle" in refusal(review(composite("x", parent="x")))


def test_a_tree_that_becomes_too_deep_is_refused() -> None:
    """The last group may be the lowest level or one in between."""
    levels: list[Group] = [composite("1"), composite("2", parent="1"), composite("3", parent="2")]
    levels += [composite("4", parent="3")]
    assert "is on level 5 of its tree" in refusal(review(pod_group("5", parent="4"), *levels))
    leaf = pod_group("5", parent="4")
    assert "is on level 5 of its tree" in refusal(review(levels[1], levels[0], *levels[2:], leaf))
    assert review(levels[3], *levels[:3]) == Review()


def test_faults_in_immutable_fields_are_refused() -> None:
    """Another Workload than the parent's, and disruption mode single below all."""
    other = refusal(review(pod_group("a", parent="root", workload="v"), composite("root", workload="w")))
    assert "all groups of a tree are made from one Workload" in other
    assert "what is disrupted as one" in refusal(review(composite("root", all_=True), pod_group("a", parent="root")))
    bare = pod_group("a", parent="root")
    bare = replace(bare, spec=replace(bare.spec, workload_ref=None))
    assert "has the parent CompositePodGroup default/root but no workloadRef" in refusal(
        review(bare, composite("root"))
    )


def test_differing_explicit_priorities_are_refused() -> None:
    """Numbers and known classes are final. Without either a default may apply later, so the review only warns."""
    root = composite("root", priority=1000)
    assert "has priority 5" in refusal(review(pod_group("a", parent="root", priority=5), root))
    assert "has priority 1," in refusal(review(with_class("a", "root", "low"), root))
    assert "has priorityClassName high" in refusal(review(with_class("a", "root", "high"), root))
    assert (
        review(with_class("a", "root", "high"), replace(root, spec=replace(root.spec, priority_class_name="high")))
        == Review()
    )
    assert "has priority 0" in warning(review(pod_group("a", parent="root", priority=None), root))
    assert "PriorityClass gone, which does not exist" in warning(review(with_class("a", "root", "gone"), root))


def test_a_group_that_contradicts_its_class_is_refused() -> None:
    """Neither can change. The default class, or that of the template, may change, so the review only warns."""
    wrong = with_class("a", "root", "high")
    wrong = replace(wrong, spec=replace(wrong.spec, priority=5))
    assert "its PriorityClass high has 1000" in refusal(review(wrong))
    meek = pod_group("a", priority=None)
    meek = replace(meek, spec=replace(meek.spec, preemption_policy="Never"))
    usual = PriorityClasses(by_name={"usual": priority_class("usual", 1, default=True)})
    assert "its PriorityClass usual has PreemptLowerPriority" in warning(review(meek, classes=usual))


def test_a_group_that_waits_for_its_template_passes() -> None:
    """Its fields are not known yet."""
    assert review(bare(pod_group("a", parent="root")), composite("root", all_=True, priority=9)) == Review()


def test_faults_of_classes_are_not_reported_without_access_to_classes() -> None:
    """An operator without read access to PriorityClasses reports nothing about them."""
    around = ValidationContext(workloads={}, classes=CLASSES)
    assert review_group(Forest.of([]), with_class("a", "root", "gone"), around, knows_classes=False) == Review()


def test_template_faults_are_warnings() -> None:
    """The Workload may be recreated with the template."""
    source = workload([leaf_template("b")])
    group = pod_group("a", workload="w", template="a")
    assert "references template a, which Workload default/w does not have" in warning(review(group, source=source))


def test_an_existing_fault_does_not_affect_a_change() -> None:
    """It does not affect a new group in the same tree either."""
    there: list[Group] = [composite("root"), pod_group("a", parent="root", workload="v")]
    changed = pod_group("a", parent="root", workload="v", gang=7)
    assert review(changed, *there) == Review()
    assert review(pod_group("b", parent="root"), *there) == Review()
    moved = review(pod_group("a", parent="other", workload="v"), *there, composite("other", workload="v"))
    assert moved == Review()


def test_a_workload_gets_warnings_for_groups_that_it_makes_invalid() -> None:
    """Only groups that reference it count, and only faults that it adds."""
    groups: list[Group] = [
        pod_group("a", workload="w", template="a"),
        pod_group("b", workload="w", template="b"),
        pod_group("c", workload="w", template="c"),
    ]
    before = workload([leaf_template("a"), leaf_template("b")])
    around = ValidationContext(workloads={("default", "w"): before}, classes=CLASSES)
    made = [GroupKey("PodGroup", "default", name) for name in "abc"]
    found = review_workload(Forest.of(groups), made, workload([leaf_template("a")]), around)
    assert "PodGroup default/b references template b" in warning(found)
    assert review_workload(Forest.of(groups), made, before, around) == Review()
