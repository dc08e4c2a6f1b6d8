"""The health of trees, by cases and compared with a slow model."""

from collections.abc import Iterable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodStatus
from cpg_api.scheduling.forest import Forest, Group, GroupKey, Tree
from cpg_api.scheduling.health import GroupHealth, HealthReason, tree_health
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.statuses import GroupCounts, PodCounts, TopologyDomain
from cpg_engine.testing.builders import bare, composite, metadata, pod, pod_group

NODES: Mapping[str, Mapping[str, str]] = {
    "n1": {"block": "b1", "rack": "r1"},
    "n2": {"block": "b1", "rack": "r2"},
    "n3": {"block": "b2", "rack": "r3"},
    "bare": {},
}
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


def member(group: str, number: int = 0, *, node: str = "", phase: str = "Pending", ending: bool = False) -> Pod:
    """Return a pod of a group."""
    found = pod(f"{group}-{number}", group=group, node_name=node)
    meta = replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z" if ending else None)
    return replace(found, metadata=meta, status=PodStatus(phase=phase))


def only_tree(groups: Iterable[Group]) -> Tree:
    """Return the only tree that the groups form."""
    (tree,) = Forest.of(groups).trees()
    return tree


def health_by_name(groups: Iterable[Group], *pods: Pod) -> dict[str, GroupHealth]:
    """Return the health of every group of the only tree, by name."""
    tree = only_tree(groups)

    def members(key: GroupKey) -> list[Pod]:
        return [one for one in pods if one.metadata.name.rpartition("-")[0] == key.name]

    return {node.key.name: one for node, one in zip(tree.nodes, tree_health(tree, members, NODES), strict=True)}


@pytest.mark.parametrize(
    ("pods", "health", "message", "counts"),
    [
        ([], HealthReason.PENDING, "0 of 0 pods running, 2 short", PodCounts()),
        ([member("g")], HealthReason.PENDING, "0 of 1 pods running, 2 short", PodCounts(desired=1)),
        (
            [member("g", node="n1", phase="Running"), member("g", 1)],
            HealthReason.PARTIAL,
            "1 of 2 pods running, 1 short",
            PodCounts(desired=2, scheduled=1, running=1),
        ),
        (
            [member("g", node="n1", phase="Running"), member("g", 1, node="n1")],
            HealthReason.STARTING,
            "1 of 2 pods running, 1 short",
            PodCounts(desired=2, scheduled=2, running=1),
        ),
        (
            [member("g", number, node="n1", phase="Running") for number in range(3)],
            HealthReason.MINIMUM_MET,
            "3 of 3 pods running",
            PodCounts(desired=3, scheduled=3, running=3),
        ),
        (
            [member("g", node="n1", phase="Succeeded"), member("g", 1, phase="Succeeded")],
            HealthReason.MINIMUM_MET,
            "2 of 2 pods running",
            PodCounts(desired=2, scheduled=2, running=2),
        ),
        (
            [
                member("g", node="n1", phase="Running"),
                member("g", 1, node="n1", phase="Failed"),
                member("g", 2, node="n1", phase="Running", ending=True),
            ],
            HealthReason.PARTIAL,
            "1 of 1 pods running, 1 short",
            PodCounts(desired=1, scheduled=1, running=1),
        ),
        (
            [member("g", node="n1", phase="Succeeded"), member("g", 1, node="n1", phase="Failed")],
            HealthReason.PENDING,
            "1 of 1 pods running, 1 short",
            PodCounts(desired=1, scheduled=1, running=1),
        ),
    ],
)
def test_the_health_of_a_gang_compares_running_pods_with_its_minimum(
    pods: list[Pod], health: HealthReason, message: str, counts: PodCounts
) -> None:
    """Failed and terminating pods do not count. Succeeded pods count, and hold no node."""
    assert health_by_name([pod_group("g", gang=2)], *pods) == {
        "g": GroupHealth(reason=health, message=message, pods=counts)
    }


def two_gangs(*, minimum: int = 2, key: str | None = None, preferred: str | None = None) -> list[Group]:
    """Return a root above two gangs of one pod, the first with a rack constraint."""
    return [
        composite("root", gang=minimum, key=key, preferred=preferred),
        pod_group("a", parent="root", key="rack"),
        pod_group("b", parent="root"),
    ]


def test_the_message_of_a_root_names_an_unhealthy_child() -> None:
    """The first unhealthy child, with its own message."""
    fare = health_by_name(two_gangs(), member("a", node="n1", phase="Running"))["root"]
    assert fare.reason is HealthReason.PARTIAL
    assert fare.message == "1 of 2 groups ready, 1 short: PodGroup b: 0 of 0 pods running, 1 short"
    assert (fare.groups, fare.pods) == (GroupCounts(desired=2, ready=1), PodCounts(desired=1, scheduled=1, running=1))


def test_the_message_names_the_lowest_unhealthy_group() -> None:
    """It does not grow with the depth of the tree."""
    groups: list[Group] = [composite("root"), composite("mid", parent="root"), pod_group("leaf", parent="mid")]
    assert (
        health_by_name(groups)["root"].message
        == "0 of 1 groups ready, 1 short: PodGroup leaf: 0 of 0 pods running, 1 short"
    )


def test_a_tree_whose_pods_have_ended_is_not_partial() -> None:
    """It will never be complete, but holds no room; one running pod makes it partial."""
    done = member("a", node="n1", phase="Succeeded")
    failed = member("b", node="n2", phase="Failed")
    assert health_by_name(two_gangs(), done, failed)["root"].reason is HealthReason.PENDING
    wider = [*two_gangs(), pod_group("c", gang=2, parent="root")]
    assert (
        health_by_name(wider, done, failed, member("c", node="n1", phase="Running"))["root"].reason
        is HealthReason.PARTIAL
    )


def test_missing_child_groups_count_as_short() -> None:
    """If all children are healthy, the message names the group itself."""
    groups: list[Group] = [composite("root"), composite("mid", gang=2, parent="root"), pod_group("leaf", parent="mid")]
    found = health_by_name(groups, member("leaf", node="n1", phase="Running"))
    assert found["mid"].message == "1 of 1 groups ready, 1 short"
    assert found["root"].message == (
        "0 of 1 groups ready, 1 short: CompositePodGroup mid: 1 of 1 groups ready, 1 short"
    )


def test_a_root_above_its_minimum_is_healthy() -> None:
    """Its message does not name the unhealthy children."""
    fare = health_by_name(two_gangs(minimum=1), member("a", node="n1", phase="Running"))["root"]
    assert (fare.reason, fare.message) == (HealthReason.MINIMUM_MET, "1 of 2 groups ready")


def test_a_root_whose_minimum_is_placed_is_starting() -> None:
    """A half that is running is not partial while the other half starts."""
    fare = health_by_name(two_gangs(), member("a", node="n1", phase="Running"), member("b", node="n2"))["root"]
    assert fare.reason is HealthReason.STARTING


@pytest.mark.parametrize(
    ("asked", "nodes", "domain"),
    [
        ({"key": "block"}, ("n1", "n2"), ("block", "b1")),
        ({"key": "block"}, ("n1", "n3"), None),
        ({"key": "block"}, ("n1", "bare"), None),
        ({"key": "block"}, ("bare", "bare"), None),
        ({"key": "block"}, ("gone", "gone"), None),
        ({"key": "block"}, (), None),
        ({}, ("n1", "n1"), None),
        ({"key": "block", "preferred": "rack"}, ("n1", "n1"), ("rack", "r1")),
        ({"key": "block", "preferred": "rack"}, ("n1", "n2"), ("block", "b1")),
    ],
)
def test_the_domain_is_the_narrowest_shared_one(
    asked: dict[str, str], nodes: tuple[str, ...], domain: tuple[str, str] | None
) -> None:
    """It is read from the nodes of the members; None where they are in several domains or in none."""
    pods = [member(name, node=node) for name, node in zip("ab", nodes, strict=False)]
    expected = TopologyDomain(*domain) if domain else None
    assert (
        health_by_name(two_gangs(key=asked.get("key"), preferred=asked.get("preferred")), *pods)["root"].domain
        == expected
    )


members_drawn = st.lists(
    st.builds(
        member,
        st.sampled_from("abc"),
        st.integers(0, 9),
        node=st.sampled_from(("", "n1", "n2", "n3", "bare")),
        phase=st.sampled_from(PHASES),
        ending=st.booleans(),
    ),
    max_size=12,
    unique_by=lambda one: one.metadata.name,
)


@given(members_drawn, st.integers(1, 3), st.integers(1, 3))
def test_health_equals_that_of_a_simple_model(pods: list[Pod], inner: int, leaf: int) -> None:
    """Counts are the sums of the leaves, and a group is healthy exactly when its minimum is met."""
    groups: list[Group] = [
        composite("root", gang=inner),
        composite("mid", gang=1, parent="root"),
        pod_group("a", gang=leaf, parent="root"),
        pod_group("b", gang=None, parent="mid"),
        pod_group("c", gang=leaf, parent="mid"),
    ]
    found = health_by_name(groups, *pods)
    ready = {}
    for name, minimum in (("a", leaf), ("b", 1), ("c", leaf)):
        mine = [one for one in pods if one.metadata.name.startswith(name) and not one.is_terminating]
        running = [
            one
            for one in mine
            if one.status.phase == "Succeeded" or (one.status.phase == "Running" and one.spec.node_name)
        ]
        ready[name] = len(running) >= minimum
        assert found[name].pods.running == len(running)
        assert found[name].pods.desired == sum(one.status.phase != "Failed" for one in mine)
    ready["mid"] = ready["b"] or ready["c"]
    ready["root"] = ready["mid"] + ready["a"] >= inner
    assert {name: one.reason is HealthReason.MINIMUM_MET for name, one in found.items()} == ready
    leaves = [found[name].pods for name in "abc"]
    assert found["root"].pods.scheduled == sum(one.scheduled for one in leaves)
    below = {"root": "abc", "mid": "bc", "a": "a", "b": "b", "c": "c"}
    for name, one in found.items():
        holding = [
            pod
            for pod in pods
            if pod.metadata.name[0] in below[name]
            and pod.spec.node_name
            and not pod.is_terminating
            and pod.status.phase not in {"Succeeded", "Failed"}
        ]
        assert one.reason is not (HealthReason.PENDING if holding else HealthReason.PARTIAL)
        partial = one.reason in {HealthReason.PARTIAL, HealthReason.PENDING}
        assert partial == (not ready[name] and "STARTING" not in one.reason.name)


def test_the_health_of_a_cycle_is_computed() -> None:
    """Without endless recursion."""
    groups = [composite("x", parent="y"), composite("y", parent="x")]
    assert {name: one.reason for name, one in health_by_name(groups).items()} == {
        "x": HealthReason.PENDING,
        "y": HealthReason.PENDING,
    }


def test_only_pod_groups_have_members() -> None:
    """Pods of a CompositePodGroup of the same name are not read."""
    tree = only_tree([composite("root"), pod_group("root", parent="root", meta=metadata("root"))])
    asked: list[GroupKey] = []

    def members(key: GroupKey) -> tuple[Pod, ...]:
        asked.append(key)
        return ()

    tree_health(tree, members, NODES)
    assert asked == [GroupKey(PodGroup.kind, "default", "root")]


def test_a_group_that_waits_for_its_template_says_so() -> None:
    """With the Workload's name, at every level, and without comparing a minimum."""
    said = health_by_name([bare(composite("root")), bare(pod_group("g", parent="root"))])
    assert said["g"].message.startswith("waiting for Workload default/w with a template g for a PodGroup")
    assert said["root"].message.startswith("waiting for Workload default/w with a template root for a Composite")
    assert said["g"].reason is HealthReason.PENDING
    running = health_by_name([bare(pod_group("g", workload="w"))], member("g", node="n1", phase="Running"))
    assert running["g"].reason is HealthReason.MINIMUM_MET
