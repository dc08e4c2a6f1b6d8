"""The checks of ``doctor`` on the objects of a cluster."""

from collections.abc import Iterator

from msgspec.structs import replace
from tests.cli.cluster_caches import BLOCK, RACK, cache_of, facts_of, ours, racks

from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import FINALIZER
from cpg_cli.analysis.findings import CheckFinding, some
from cpg_cli.analysis.object_checks import finalizer_checks, pod_checks, priority_checks, topology_checks
from cpg_engine.testing.builders import composite, node, pod, pod_group, priority_class

TREE: list[Group] = [composite("a", key=BLOCK), pod_group("b", parent="a", key=RACK)]


def found(findings: Iterator[CheckFinding]) -> list[tuple[str, str]]:
    """Return level and text of findings."""
    return [(one.level.value, one.text) for one in findings]


def other_scheduler(name: str) -> Pod:
    """Return a pod of a group that another scheduler places."""
    found = pod(name, group="g")
    return replace(found, spec=replace(found.spec, scheduler_name="default-scheduler"))


def test_labels_that_all_nodes_have_are_fine() -> None:
    """And each rack is in one block."""
    facts, cache = facts_of(racks(), TREE), cache_of(racks(), TREE)
    assert found(topology_checks(facts, cache)) == [
        ("ok", f"8 of 8 nodes have the label {BLOCK}"),
        ("ok", f"8 of 8 nodes have the label {RACK}"),
        ("ok", f"each {RACK} is in one {BLOCK}"),
    ]


def test_nodes_without_a_label_and_racks_in_two_blocks_are_warnings() -> None:
    """A label that no node has fails."""
    nodes = [
        node("n1", labels={BLOCK: "b1", RACK: "r1"}),
        node("n2", labels={BLOCK: "b2", RACK: "r1"}),
        node("n3", labels={BLOCK: "b2"}),
    ]
    groups: list[Group] = [*TREE, pod_group("c", key="power")]
    assert found(topology_checks(facts_of(nodes, groups), cache_of(nodes, groups))) == [
        ("fail", "0 of 3 nodes have the label power, which groups use"),
        ("ok", f"3 of 3 nodes have the label {BLOCK}"),
        ("warn", f"2 of 3 nodes have the label {RACK}; not n3"),
        ("warn", f"values of {RACK} are in several domains of {BLOCK}: r1 in b1, b2"),
    ]


def test_pods_of_a_group_with_another_scheduler_fail() -> None:
    """A pod of a group that does not exist is a warning; a finished pod does not count."""
    foreign = other_scheduler("foreign")
    done = other_scheduler("done")
    done = replace(done, status=replace(done.status, phase="Succeeded"))
    pods = [foreign, done, ours("fine", "g"), ours("lost", "absent"), ours("single")]
    groups = [pod_group("g")]
    assert found(pod_checks(facts_of(groups=groups, pods=pods), cache_of(groups=groups, pods=pods))) == [
        ("fail", "1 pod in a group with another scheduler: default/foreign (default-scheduler)"),
        ("warn", "1 pod with a group that does not exist: default/lost"),
    ]
    fine = [pods[2]]
    assert found(pod_checks(facts_of(groups=groups, pods=fine), cache_of(groups=groups, pods=fine))) == [
        ("ok", "1 pod with our scheduler")
    ]


def test_priority_classes_that_groups_name_exist() -> None:
    """Those of the system always do."""
    group = pod_group("g")
    groups = [
        replace(group, spec=replace(group.spec, priority_class_name=name)) for name in ("high", "system-node-critical")
    ]
    groups[1] = replace(groups[1], metadata=replace(group.metadata, name="other"))
    facts, cache = facts_of(groups=groups), cache_of(groups=groups)
    assert found(priority_checks(facts, cache)) == [("fail", "groups name priority classes that do not exist: high")]
    facts.objects.by_kind[PriorityClass] = [priority_class("high", 5)]
    assert found(priority_checks(facts, cache)) == [("ok", "those of 2 groups exist")]


def test_groups_that_hang_in_their_deletion_fail() -> None:
    """So do finalizers without an operator that removes them."""
    group = pod_group("g")
    held = replace(group.metadata, finalizers=(FINALIZER,))
    facts = facts_of(groups=[group])
    assert [level for level, _ in found(finalizer_checks(facts))] == ["ok"]
    facts.groups, facts.processes = [held], {"operator": []}
    assert found(finalizer_checks(facts)) == [("fail", "1 group with our finalizer, and no operator removes it")]
    facts.groups, facts.now = [replace(held, deletion_timestamp="1970-01-01T00:00:00Z")], 400.0
    assert found(finalizer_checks(facts)) == [("fail", "1 group in deletion for more than 5 minutes: default/g")]


def test_what_was_not_read_is_not_judged() -> None:
    """It is named as not checked elsewhere."""
    facts = facts_of()
    facts.unread = {"nodes": "no", "pods": "no", "priorityclasses": "no"}
    cache = cache_of(groups=TREE)
    assert [*topology_checks(facts, cache), *pod_checks(facts, cache), *priority_checks(facts, cache)] == []


def test_of_many_names_some_are_shown() -> None:
    """With how many there are besides."""
    assert some(f"n{number}" for number in range(8)) == "n0, n1, n2, n3, n4 and 3 more"
