"""Derived membership: the group of a pod from its own labels and its controller."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodSpec, SchedulingGroup
from cpg_api.integrations import job, jobset, leaderworkerset, ray
from cpg_api.integrations.naming import checked
from cpg_api.integrations.registry import RULES, Integrations, owner_of_group
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.membership import DERIVED_PATH, LABEL_PATH, NATIVE_PATH, NO_GROUP, Membership, membership
from cpg_api.scheduling.names import ADOPT, GANG, POD_GROUP_LABEL, SCHEDULER_NAME

ALL = Integrations([SCHEDULER_NAME], RULES)
JOB, STATEFULSET, REPLICASET = ("batch/v1", "Job"), ("apps/v1", "StatefulSet"), ("apps/v1", "ReplicaSet")
RAYCLUSTER = ("ray.io/v1", "RayCluster")
JOBSET = {jobset.NAME: "train", jobset.ROLE: "workers", jobset.INDEX: "2"}
LWS = {leaderworkerset.NAME: "serve", leaderworkerset.INDEX: "1"}
SUBGROUP = {leaderworkerset.SUBGROUP: "0"}
EXCLUSIVE = {leaderworkerset.SUBGROUP_TOPOLOGY: "rack"}
RAY = {ray.CLUSTER: "ray", ray.GROUP: "cpu"}
INDEXED = {job.COMPLETION_INDEX: "0"}

Controller = tuple[str, str]
Texts = dict[str, str]


def pod(
    controller: Controller | None,
    name: str,
    labels: Texts,
    annotations: Texts | None = None,
    *,
    scheduler: str = SCHEDULER_NAME,
    native: str | None = None,
) -> Pod:
    """Return a pod with this controller; a second owner that does not control it comes first."""
    owners = [OwnerReference(api_version="v1", kind="ConfigMap", name="other")]
    if controller is not None:
        owners.append(OwnerReference(api_version=controller[0], kind=controller[1], name=name, controller=True))
    group = SchedulingGroup(native) if native else None
    meta = ObjectMeta(labels=labels, annotations=annotations or {}, owner_references=tuple(owners))
    return Pod(meta, PodSpec(scheduler_name=scheduler, scheduling_group=group))


def derived_by(integrations: Integrations, member: Pod) -> Membership:
    """Return the membership of a pod by some integrations."""
    return membership(integrations.with_group(member))


def derived(member: Pod) -> Membership:
    """Return the membership of a pod by all integrations."""
    return derived_by(ALL, member)


@pytest.mark.parametrize(
    ("member", "group"),
    [
        (pod(JOB, "train-workers-2", JOBSET | INDEXED), "jobset.train.workers.2"),
        (pod(STATEFULSET, "serve", LWS), "lws.serve.replica.1"),
        (pod(STATEFULSET, "serve-1", LWS | SUBGROUP), "lws.serve.replica.1"),
        (pod(STATEFULSET, "serve-1", LWS | SUBGROUP, EXCLUSIVE), "lws.serve.subgroup.1.0"),
        (pod(STATEFULSET, "serve", LWS, EXCLUSIVE), "lws.serve.leader.1"),
        (pod(RAYCLUSTER, "ray", RAY), "raycluster.ray.cpu"),
        (pod(RAYCLUSTER, "ray", RAY | {ray.GROUP: "Big"}), "raycluster.ray.big"),
        (pod(JOB, "a.b", INDEXED), "job.a.b.pods"),
        (pod(JOB, "a", {}, INDEXED), "job.a.pods"),
        (pod(JOB, "a", {GANG: "true"}), "job.a.pods"),
        (pod(JOB, "a", {}, {GANG: "true"}), "job.a.pods"),
    ],
)
def test_the_group_of_each_kind(member: Pod, group: str) -> None:
    """Prefix, owner, role and number."""
    assert derived(member) == Membership(group, DERIVED_PATH)
    assert ALL.group_of(member) == group


@pytest.mark.parametrize(
    "member",
    [
        pod(None, "", JOBSET),
        pod(("example.com/v1", "Job"), "train-workers-2", JOBSET),
        pod(JOB, "train-workers-2", JOBSET, scheduler="default-scheduler"),
        pod(JOB, "train-workers-2", JOBSET | {ADOPT: "false"}),
        pod(JOB, "train-workers-2", JOBSET, {ADOPT: "false"}),
        pod(JOB, "train-workers-3", JOBSET),
        pod(JOB, "train-workers-2", {jobset.NAME: "train"} | INDEXED),
        pod(JOB, "a.b-workers-2", JOBSET | {jobset.NAME: "a.b"}),
        pod(STATEFULSET, "serve-2", LWS),
        pod(STATEFULSET, "serve", {leaderworkerset.NAME: "serve"}),
        pod(STATEFULSET, "serve", LWS | {leaderworkerset.SUBGROUP: ""}, EXCLUSIVE),
        pod(RAYCLUSTER, "other", RAY),
        pod(RAYCLUSTER, "ray", {ray.CLUSTER: "ray"}),
        pod(RAYCLUSTER, "ray", RAY | {ray.GROUP: "a.b"}),
        pod(JOB, "a", {}),
        pod(REPLICASET, "web-1", {}),
        pod(STATEFULSET, "db", {}),
    ],
)
def test_pods_without_a_derived_group(member: Pod) -> None:
    """Of other schedulers and controllers, by their own wish, or with labels that their controller does not confirm."""
    assert derived(member) is NO_GROUP


def test_a_name_in_the_pod_wins() -> None:
    """The native field, the label and the annotation come before what is derived, and so do their problems."""
    labels = JOBSET | {POD_GROUP_LABEL: "mine"}
    assert derived(pod(JOB, "train-workers-2", labels)) == Membership("mine", LABEL_PATH)
    assert derived(pod(JOB, "train-workers-2", JOBSET, native="n")) == Membership("n", NATIVE_PATH)
    assert derived(pod(JOB, "train-workers-2", labels, native="n")).problem is not None


def test_an_integration_that_is_off_derives_nothing() -> None:
    """Nor does that of Jobs take pods of JobSets, whose Jobs have no groups of their own."""
    off = Integrations([SCHEDULER_NAME], ["job"])
    assert derived_by(off, pod(JOB, "train-workers-2", JOBSET | INDEXED)) is NO_GROUP
    assert derived_by(off, pod(STATEFULSET, "serve", LWS)) is NO_GROUP
    assert derived_by(off, pod(JOB, "train", INDEXED)).group == "job.train.pods"


@pytest.mark.parametrize(
    ("group", "owner"),
    [
        ("lws.serve.replica.0", "LeaderWorkerSet serve"),
        ("job.a.b.pods", "Job a.b"),
        ("replicaset.a.b-1.pods", "ReplicaSet a.b-1"),
        ("other.a.b", "other a"),
    ],
)
def test_the_name_of_a_group_has_its_owner(group: str, owner: str) -> None:
    """By the prefix of its kind; of an unknown prefix, the prefix itself."""
    assert owner_of_group(group) == owner


def test_a_name_that_is_too_long_is_not_derived() -> None:
    """Names of groups have 253 characters at most."""
    assert checked("y" * 63, "y" * 63, "y" * 63, "y" * 61) is not None
    assert checked("y" * 63, "y" * 63, "y" * 63, "y" * 62) is None


NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,5}[a-z0-9])?", fullmatch=True)
NUMBERS = st.integers(0, 99).map(str)


@given(st.tuples(NAMES, NAMES, NUMBERS), st.tuples(NAMES, NAMES, NUMBERS))
def test_different_replicas_have_different_groups(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    """Also where the names of their Jobs are the same: ``a`` with role ``b-c``, and ``a-b`` with role ``c``."""
    keys = (jobset.NAME, jobset.ROLE, jobset.INDEX)
    first, second = (derived(pod(JOB, "-".join(parts), dict(zip(keys, parts, strict=True)))) for parts in (one, other))
    assert (first == second) == (one == other)


def controlled_by(uid: str, member: Pod) -> Pod:
    """Return a pod whose controller has this UID, with the owner by all integrations."""
    owners = tuple(replace(one, uid=uid) for one in member.metadata.owner_references)
    return ALL.with_group(replace(member, metadata=replace(member.metadata, owner_references=owners)))


@pytest.mark.parametrize(
    ("member", "owner"),
    [
        (pod(JOB, "a", INDEXED), "Job/1"),
        (pod(RAYCLUSTER, "ray", RAY), "RayCluster/1"),
        (pod(JOB, "train-workers-2", JOBSET | {jobset.UID: "2"}), "JobSet/2"),
        (pod(JOB, "train-workers-2", JOBSET), ""),
        (pod(STATEFULSET, "serve", LWS), ""),
        (pod(REPLICASET, "web", {}), ""),
    ],
)
def test_the_owner_is_known_where_pods_have_its_uid(member: Pod, owner: str) -> None:
    """As their controller, or in a label: StatefulSets are between a LeaderWorkerSet and its pods."""
    assert controlled_by("1", member).derived_owner == owner
