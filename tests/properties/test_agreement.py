"""Scheduler and operator judge every tree alike, so that neither writes over what the other has said of it."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodStatus
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.meta import Condition
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.workload import Workload
from cpg_api.validity import check_tree, initially_scheduled_type, validity_condition
from cpg_client.flavours import CRD
from cpg_client.stores import Added
from cpg_engine.testing.builders import (
    bare,
    composite,
    inner_template,
    leaf_template,
    pod,
    pod_group,
    priority_class,
    workload,
)
from cpg_operator.testing.fixtures import ViewFixture
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.status.messages.units import inadmissible_text
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.units import build_unit, queue_key_of

LATER = "2026-01-01T00:00:00Z"
SOURCES = (
    None,
    None,
    workload([inner_template("root", [leaf_template("a"), leaf_template("b")])]),
    workload([inner_template("root", [leaf_template("a")])]),
    workload([leaf_template("a")]),
)
FEW = st.sampled_from([False, False, False, True])
RARE = st.sampled_from([*[False] * 9, True])


@st.composite
def groups(draw: st.DrawFn) -> list[Group]:
    """Draw a root, or none, over two leaves: some leave all to their template, some fit no other."""
    found: list[Group] = [composite("root", all_=draw(RARE))] if not draw(FEW) else []
    for name in "ab":
        made_from = "v" if draw(RARE) else None
        parent = "root" if not draw(FEW) else draw(st.sampled_from([None, "root"]))
        leaf: Group = pod_group(
            name, parent=parent, workload=made_from, all_=draw(RARE), priority=5 if draw(RARE) else 0
        )
        if draw(st.booleans()):
            leaf = replace(bare(leaf), spec=replace(bare(leaf).spec, priority=draw(st.sampled_from([None, 0, 5]))))
        if draw(FEW):
            leaf = replace(leaf, spec=replace(leaf.spec, priority_class_name=draw(st.sampled_from(["low", "high"]))))
        found.append(leaf)
    return found


@st.composite
def members(draw: st.DrawFn) -> list[Pod]:
    """Draw pods that may differ in all that a tree must have in common, and may have ended or be about to."""
    found = []
    for number in range(draw(st.integers(1, 4))):
        one = pod(
            f"p{number}",
            group=draw(st.sampled_from("ab")),
            priority=5 if draw(FEW) else 0,
            node_name="n1" if draw(FEW) else "",
            preemption_policy=draw(st.sampled_from([None, None, "PreemptLowerPriority", "Never"])),
        )
        if draw(FEW):
            one = replace(one, spec=replace(one.spec, scheduler_name="other"))
        if draw(FEW):
            one = replace(one, status=PodStatus(phase="Failed"))
        if draw(FEW):
            one = replace(one, metadata=replace(one.metadata, deletion_timestamp=LATER))
        found.append(one)
    return found


def refusals(*there: Group | Pod | Workload | PriorityClass) -> list[tuple[UnitKey, Inadmissible | None]]:
    """Return what the scheduler has against each root at which a pod of its own waits."""
    stage = Stage(*there)
    roots = {stage.cache.unit_of(one) for one in there if isinstance(one, Pod)}
    found = []
    for root in sorted(roots, key=str):
        if queue_key_of(stage.cache, root) is not None:
            attempt = build_unit(stage.cache, root)
            found.append((root, attempt if isinstance(attempt, Inadmissible) else None))
    return found


def told(group: Group, refusal: Inadmissible) -> Group:
    """Return a group of which the scheduler has said why it is not tried."""
    kind = initially_scheduled_type(group)
    text = inadmissible_text(refusal.problem)
    said = Condition(type=kind, status="False", reason=text.reason, message=text.message)
    return replace(group, status=replace(group.status, conditions=(said,)))


def wrong(refusal: Inadmissible | None) -> str:
    """Return what the scheduler calls wrong with the groups of a tree, if anything."""
    text = None if refusal is None else inadmissible_text(refusal.problem)
    return text.message if text is not None and text.reason == "Invalid" else ""


@settings(max_examples=400)
@given(groups(), members(), st.sampled_from(SOURCES), st.sampled_from([(), (priority_class("high", 5),)]))
def test_operator_and_scheduler_agree_whether_a_tree_is_invalid_and_why(
    there: list[Group], pods: list[Pod], source: Workload | None, classes: Sequence[PriorityClass]
) -> None:
    """In the very words; and what the scheduler has said, the operator leaves as it is."""
    fixture, sources = ViewFixture(), (source,) if source is not None else ()
    for made in sources:
        fixture.view.put(CRD, made)
    fixture.put(*there)
    fixture.add_pods(*pods)
    for one in classes:
        fixture.view.on_class(Added(one.metadata.name, one))
    for root, refusal in refusals(*there, *sources, *classes, *pods):
        context = fixture.context(root.key.name, kind=root.key.kind)
        found = check_tree(context.tree, context.surroundings)
        assert found.message == wrong(refusal)
        if refusal is not None:
            assert not any(validity_condition(told(node.group, refusal), found) for node in context.tree.nodes)
