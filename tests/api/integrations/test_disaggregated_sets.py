"""DisaggregatedSets: the groups of their pods, and the tree of each revision."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.api.integrations.test_derived_membership import STATEFULSET, Texts, derived, derived_by, pod
from tests.api.integrations.test_shapes import THEIRS, serving, tree

from cpg_api.integrations import disaggregatedset, leaderworkerset
from cpg_api.integrations.disaggregatedset import DisaggregatedSet
from cpg_api.integrations.leaderworkerset import LeaderWorkerSet
from cpg_api.integrations.policy import (
    DISRUPTION_MODE,
    MIN_COUNT,
    MIN_GROUPS,
    REPLICA_REQUIRED,
    REQUIRED,
    read_policy,
)
from cpg_api.integrations.registry import RULES, Integrations, owner_kinds
from cpg_api.integrations.trees import Shape
from cpg_api.scheduling.names import SCHEDULER_NAME

Plain = dict[str, Any]
LWS = "pd-9f69-prefill"
PREFILL = {
    disaggregatedset.NAME: "pd",
    disaggregatedset.REVISION: "9f69",
    disaggregatedset.ROLE: "prefill",
    leaderworkerset.NAME: LWS,
    leaderworkerset.INDEX: "1",
}
SUBGROUPS = {leaderworkerset.SUBGROUP_TOPOLOGY: "rack"}
DIVISION = {"subGroupSize": 2}


@pytest.mark.parametrize(
    ("controller", "labels", "annotations", "group"),
    [
        (LWS, {}, {}, "disaggregatedset.pd.9f69.prefill-replica.1"),
        (f"{LWS}-1", {}, {}, "disaggregatedset.pd.9f69.prefill-replica.1"),
        (f"{LWS}-1", {leaderworkerset.SUBGROUP: "0"}, SUBGROUPS, "disaggregatedset.pd.9f69.prefill-subgroup.1.0"),
        (LWS, {}, SUBGROUPS, "disaggregatedset.pd.9f69.prefill-leader.1"),
        (LWS, {disaggregatedset.ROLE: "decode"}, {}, f"lws.{LWS}.replica.1"),
        (LWS, {disaggregatedset.NAME: ""}, {}, f"lws.{LWS}.replica.1"),
        (f"{LWS}-2", {}, {}, None),
    ],
)
def test_the_group_of_a_pod(controller: str, labels: Texts, annotations: Texts, group: str | None) -> None:
    """Set, revision and role, which the name of the LeaderWorkerSet confirms; otherwise it is that of any other."""
    assert derived(pod(STATEFULSET, controller, PREFILL | labels, annotations)).group == group


def test_each_integration_can_be_off() -> None:
    """Without the one of DisaggregatedSets, their LeaderWorkerSets have trees of their own. The order means nothing."""
    member = pod(STATEFULSET, LWS, PREFILL)
    assert derived_by(Integrations([SCHEDULER_NAME], ["leaderworkerset"]), member).group == f"lws.{LWS}.replica.1"
    for names in (["disaggregatedset"], ["leaderworkerset", "disaggregatedset"]):
        found = derived_by(Integrations([SCHEDULER_NAME], names), member)
        assert found.group == "disaggregatedset.pd.9f69.prefill-replica.1"


def test_the_kinds_that_are_read() -> None:
    """A DisaggregatedSet needs LeaderWorkerSets, which then have no trees unless their integration is on as well."""
    kinds = {kind.kind: kind for kind in owner_kinds(["disaggregatedset"])}
    assert set(kinds) == {"DisaggregatedSet", "LeaderWorkerSet"}
    role = msgspec.convert({"spec": serving()}, LeaderWorkerSet)
    assert kinds["LeaderWorkerSet"].shape(role, read_policy({}), frozenset({SCHEDULER_NAME})) == Shape()
    assert leaderworkerset.KIND in owner_kinds(["disaggregatedset", "leaderworkerset"])
    assert {kind.kind for kind in owner_kinds(RULES)} > {"TrainJob", "JobSet"}


def lws(role: str, *, revision: str = "9f69", annotations: Mapping[str, str] | None = None, **spec: Any) -> Plain:
    """Return the LeaderWorkerSet of a role, with replicas of three pods."""
    meta = {"name": f"pd-{revision}-{role}", "annotations": dict(annotations or {})}
    return {"metadata": meta, "spec": serving(**spec)}


def composed(
    sets: list[Plain], annotations: Mapping[str, str] | None = None, *, roles: str = "a b"
) -> dict[str, Shape]:
    """Return the templates of each revision."""
    meta = {"name": "pd", "annotations": dict(annotations or {})}
    owner = msgspec.convert(
        {"metadata": meta, "spec": {"roles": [{"name": n} for n in roles.split()]}}, DisaggregatedSet
    )
    parts = [msgspec.convert(one, LeaderWorkerSet) for one in sets]
    policy = read_policy(annotations or {})
    return dict(disaggregatedset.compose(owner, parts, policy, frozenset({SCHEDULER_NAME})))


A2, B1 = "a 1 (a-replica*2 3)", "b 1 (b-replica*1 3)"


@pytest.mark.parametrize(
    ("sets", "annotations", "expected"),
    [
        ([lws("a"), lws("b", replicas=1)], {}, f"root 2 ({A2}, {B1})"),
        ([lws("b", replicas=1), lws("a")], {}, f"root 2 ({A2}, {B1})"),
        ([lws("a"), lws("b", replicas=0)], {}, f"root 2 ({A2}, b 1 (b-replica*0 3))"),
        ([lws("a"), lws("b", workerTemplate=THEIRS)], {}, f"root 1 ({A2})"),
        (
            [lws("a", annotations={REQUIRED: "block", MIN_GROUPS: "2", MIN_COUNT: "2"}), lws("b", replicas=1)],
            {REQUIRED: "zone", REPLICA_REQUIRED: "rack", MIN_COUNT: "1", DISRUPTION_MODE: "all", MIN_GROUPS: "1"},
            "root 1 @zone (a 2 @block (a-replica*2 2 @rack !all), b 1 (b-replica*1 1 @rack !all))",
        ),
        (
            [lws("a", size=4, annotations=SUBGROUPS, subGroupPolicy=DIVISION), lws("b", replicas=1)],
            {},
            f"root 2 (a 1 (a-replica*2 1 (a-subgroup*2 1 @rack)), {B1})",
        ),
    ],
)
def test_the_tree_of_a_revision(sets: list[Plain], annotations: Mapping[str, str], expected: str) -> None:
    """A gang of the roles; each needs one of its replicas. A role prefers its own annotations."""
    assert tree(composed(sets, annotations)["9f69"]) == expected


def test_names_of_templates_differ() -> None:
    """Also where a role has the name of a template of another one."""
    found = composed([lws("a", replicas=1), lws("a-replica", replicas=1)], roles="a a-replica")
    assert tree(found["9f69"]) == "root 2 (a 1 (a-replica*1 3), a-replica-2 1 (a-replica-replica*1 3))"


def test_many_roles_have_a_level_more() -> None:
    """A list has eight templates, and a tree four levels."""
    names = "abcdefghi"
    sets = [lws(name, replicas=1) for name in names]
    found = tree(composed(sets, roles=" ".join(names))["9f69"])
    assert found.startswith("root 2 (part 8 (a 1 (a-replica*1 3), ")
    sets[0] = lws("a", size=4, annotations=SUBGROUPS, subGroupPolicy=DIVISION)
    problem = "it has 9 roles, some with subgroups, and a tree may then have 8"
    assert composed(sets, roles=" ".join(names))["9f69"] == Shape(problems=(problem,))


def test_problems_are_those_of_roles_and_set() -> None:
    """Each is reported once; a role that cannot be read has no part in the tree."""
    high = {"spec": {"schedulerName": SCHEDULER_NAME, "priorityClassName": "high"}}
    found = composed([lws("a"), lws("b", workerTemplate=high)])["9f69"]
    assert found == Shape(problems=("its roles have different priority classes: , high",))
    found = composed([lws("a", annotations={MIN_GROUPS: "x"}), lws("b", replicas=1)], {MIN_COUNT: "y"})["9f69"]
    assert found.problems == ("scheduling.cpg.dev/min-groups: 'x' is no number from 1",)
    assert found.spec is not None
    assert composed([lws("a", workerTemplate=THEIRS), lws("b", workerTemplate=THEIRS)])["9f69"] == Shape()


def test_a_revision_without_all_of_its_roles_stays_as_it_is() -> None:
    """LeaderWorkerSets of one revision come, and go, one after the other."""
    assert composed([]) == {}
    assert composed([lws("a")]) == {"9f69": Shape()}
    drained = [lws("a", replicas=0), lws("a", revision="77"), lws("b", revision="77")]
    assert composed(drained)["9f69"] == Shape()
    assert composed(drained)["77"].spec is not None


def test_revisions_beside_each_other() -> None:
    """Each has a tree with the sizes of its own; the earlier one may have other roles."""
    old, new = lws("a", replicas=1), [lws(role, revision="77", replicas=0) for role in "ab"]
    found = composed([old, *new])
    assert tree(found["9f69"]) == "root 1 (a 1 (a-replica*1 3))"
    assert tree(found["77"]) == "root 2 (a 1 (a-replica*0 3), b 1 (b-replica*0 3))"


def test_pods_name_the_groups_of_the_tree() -> None:
    """The templates of leaves have the names that pods derive."""
    found = composed([lws("prefill", replicas=2), lws("decode", replicas=1)], roles="prefill decode")["9f69"]
    group = derived(pod(STATEFULSET, LWS, PREFILL)).group
    assert group is not None
    assert f"{group.split('.')[3]}*2" in tree(found)
