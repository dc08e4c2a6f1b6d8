"""Deployments and StatefulSets, which opt in, and Jobs: the minimum of each gang, and pods that are in none."""

from typing import Any

import msgspec
import pytest

from cpg_api.core.pod import Pod, PodSpec
from cpg_api.integrations import deployment, job, leaderworkerset, statefulset
from cpg_api.integrations.policy import MIN_COUNT, REQUIRED, read_policy
from cpg_api.integrations.registry import RULES, Integrations
from cpg_api.integrations.trees import OwnerKind, Shape
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.names import ADOPT, GANG, SCHEDULER_NAME

Plain = dict[str, Any]
IN, HASHED = {GANG: "true"}, {deployment.HASH: "5d6f"}
OURS = {"metadata": {"labels": IN}, "spec": {"schedulerName": SCHEDULER_NAME}}
OF_DEPLOYMENT = {**OURS, "metadata": {"labels": IN | HASHED}}
PARALLEL = {"podManagementPolicy": "Parallel"}


def group_of(kind: str, name: str, labels: dict[str, str], annotations: dict[str, str] | None = None) -> str | None:
    """Return the group of a pod with this controller in the API group apps."""
    owner = OwnerReference(api_version="apps/v1", kind=kind, name=name, controller=True)
    meta = ObjectMeta(labels=labels, annotations=annotations or {}, owner_references=(owner,))
    return Integrations([SCHEDULER_NAME], RULES).group_of(Pod(meta, PodSpec(scheduler_name=SCHEDULER_NAME)))


def test_groups_of_pods_that_opt_in() -> None:
    """One for each ReplicaSet of a Deployment, and for each StatefulSet; names may have dots."""
    assert group_of("ReplicaSet", "web-5d6f", IN | HASHED) == "replicaset.web-5d6f.pods"
    assert group_of("StatefulSet", "db", IN) == "statefulset.db.pods"
    assert group_of("StatefulSet", "d.b", {}, IN) == "statefulset.d.b.pods"


def test_pods_that_do_not() -> None:
    """Those of a ReplicaSet without a Deployment, and of a LeaderWorkerSet, even where its integration would refuse."""
    assert group_of("ReplicaSet", "web-5d6f", HASHED) is None
    assert group_of("ReplicaSet", "web-5d6f", HASHED, IN) is None
    assert group_of("ReplicaSet", "web", IN) is None
    assert group_of("ReplicaSet", "web", IN | HASHED) is None
    assert group_of("ReplicaSet", f"{'y' * 240}-5d6f", IN | HASHED) is None
    assert group_of("StatefulSet", "db", {}) is None
    assert group_of("StatefulSet", "db", IN | {ADOPT: "false"}) is None
    assert group_of("StatefulSet", "db", IN | {leaderworkerset.NAME: "other", leaderworkerset.INDEX: "0"}) is None


def shape_of(
    kind: OwnerKind, spec: Plain, *, name: str = "web-5d6f", status: Plain | None = None, **given: str
) -> Shape:
    """Return the shape of an owner; ``min_count`` and ``rack`` are its annotations."""
    plain = {"metadata": {"name": name}, "spec": spec, "status": status or {}}
    names = {"min_count": MIN_COUNT, "topology": REQUIRED}
    policy = read_policy({names[key]: value for key, value in given.items()})
    return kind.shape(msgspec.convert(plain, kind.type), policy, frozenset({SCHEDULER_NAME}))


def minimum(found: Shape) -> int | None:
    """Return the minimum of the one group of a shape, None for a basic group."""
    assert found.spec is not None
    (template,) = found.spec.pod_group_templates or ()
    assert template.name == "pods"
    gang = template.scheduling_policy.gang
    return gang.min_count if gang is not None else None


def test_the_group_of_a_replica_set_is_basic() -> None:
    """A rollout makes few pods at a time, so a minimum is refused; a domain is not."""
    found = shape_of(deployment.KIND, {"replicas": 3, "template": OF_DEPLOYMENT}, min_count="2", topology="rack")
    assert minimum(found) is None
    assert found.problems == (deployment.NO_GANG,)
    assert "rack" in str(found.spec)
    assert shape_of(deployment.KIND, {"template": OF_DEPLOYMENT}).problems == ()
    assert deployment.KIND.selector == "scheduling.cpg.dev/gang=true"


def test_a_replica_set_that_was_scaled_down_keeps_its_group() -> None:
    """It gets none if it has none."""
    assert shape_of(deployment.KIND, {"replicas": 0, "template": OF_DEPLOYMENT}) == Shape(rests=True)


@pytest.mark.parametrize(
    ("kind", "template", "name"),
    [
        (deployment.KIND, OURS, "web-5d6f"),
        (deployment.KIND, OF_DEPLOYMENT, "web"),
        (deployment.KIND, OF_DEPLOYMENT, f"{'y' * 240}-5d6f"),
        (deployment.KIND, {**OF_DEPLOYMENT, "spec": {}}, "web-5d6f"),
        (deployment.KIND, {**OURS, "metadata": {"labels": HASHED}}, "web-5d6f"),
        (statefulset.KIND, {"spec": OURS["spec"]}, "db"),
        (statefulset.KIND, {**OURS, "spec": {}}, "db"),
        (statefulset.KIND, {**OURS, "metadata": {"labels": IN | {leaderworkerset.NAME: "serve"}}}, "db"),
        (statefulset.KIND, OURS, "y" * 250),
        (job.KIND, OURS, "y" * 250),
    ],
)
def test_owners_without_a_tree(kind: OwnerKind, template: Plain, name: str) -> None:
    """Their pods derive no group either."""
    assert shape_of(kind, {"template": template}, name=name) == Shape()


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({"replicas": 3, **PARALLEL}, {}, 3),
        ({"replicas": 0, **PARALLEL}, {}, 1),
        (PARALLEL, {"currentRevision": "a", "updateRevision": "a", "readyReplicas": 1}, 1),
        ({"replicas": 3, **PARALLEL}, {"currentRevision": "a", "updateRevision": "b"}, 3),
        ({"replicas": 3, **PARALLEL}, {"currentRevision": "a", "updateRevision": "b", "readyReplicas": 1}, 1),
        ({"replicas": 3, **PARALLEL}, {"currentRevision": "a", "updateRevision": "a", "readyReplicas": 1}, 3),
        ({"replicas": 3, "podManagementPolicy": "OrderedReady"}, {}, 1),
        ({"replicas": 3}, {}, 1),
    ],
)
def test_stateful_sets(spec: Plain, status: Plain, expected: int) -> None:
    """A gang of all, unless pods are created one by one, or a rollout replaces them one by one."""
    assert minimum(shape_of(statefulset.KIND, {"template": OURS, **spec}, status=status)) == expected


def test_what_is_kept_of_a_stateful_set() -> None:
    """Of one that does not opt in only its metadata, and of others whether a pod is ready: so few changes matter."""
    spec, status = {"replicas": 3, **PARALLEL}, {"readyReplicas": 2, "currentRevision": "a", "updateRevision": "b"}
    assert statefulset.KIND.reduce is statefulset.reduce
    metadata = {"metadata": {"name": "db"}}
    other = msgspec.convert({**metadata, "spec": {**spec, "template": {}}, "status": status}, statefulset.StatefulSet)
    assert statefulset.reduce(other) == statefulset.StatefulSet(ObjectMeta("db"))
    ours = msgspec.convert({**metadata, "spec": {**spec, "template": OURS}, "status": status}, statefulset.StatefulSet)
    assert statefulset.reduce(ours).spec == ours.spec
    assert statefulset.reduce(ours).status == statefulset.StatefulSetStatus(1, "a", "b")


def test_a_minimum_for_a_stateful_set() -> None:
    """Pods that are created in order cannot be a gang of several."""
    assert minimum(shape_of(statefulset.KIND, {"replicas": 3, "template": OURS, **PARALLEL}, min_count="2")) == 2
    ordered = shape_of(statefulset.KIND, {"replicas": 3, "template": OURS}, min_count="2")
    assert (minimum(ordered), ordered.problems) == (1, (statefulset.ONE_BY_ONE,))
    assert shape_of(statefulset.KIND, {"replicas": 3, "template": OURS}, min_count="1").problems == ()


def test_jobs_that_rest() -> None:
    """A suspended Job has its sizes kept up to date; Kubernetes groups the pods of one with a scheduling of its own."""
    suspended = shape_of(job.KIND, {"parallelism": 4, "suspend": True, "template": OURS})
    assert (minimum(suspended), suspended.rests) == (4, True)
    complete = {"conditions": [{"type": "Complete", "status": "True"}]}
    assert shape_of(job.KIND, {"template": OURS}, status=complete) == Shape(rests=True)
    assert shape_of(job.KIND, {"template": OURS, "scheduling": {}}) == Shape()


@pytest.mark.parametrize(
    ("spec", "status", "existing", "expected"),
    [
        ({"parallelism": 4, "completions": 9}, {"succeeded": 4}, 4, 4),
        ({"parallelism": 4, "completions": 9}, {"succeeded": 4}, 0, 4),
        ({"parallelism": 4, "completions": 9}, {"succeeded": 7}, 0, 2),
        ({"parallelism": 4, "completions": 9}, {"succeeded": 7}, 1, 3),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 1}, 2, 4),
        ({"parallelism": 4, "completions": 4}, {"succeeded": 4}, 0, 1),
        ({"parallelism": 8, "completions": 8}, {"failedIndexes": "1,3-5"}, 0, 4),
        ({"parallelism": 4}, {"succeeded": 3}, 0, 1),
    ],
)
def test_lost_pods_do_not_count(spec: Plain, status: Plain, existing: int, expected: int) -> None:
    """So the last pods of a Job are placed although finished ones were deleted; the gang counts those that exist."""
    owner = msgspec.convert({"spec": {"template": OURS, **spec}, "status": status}, job.Job)
    found = job.shape(job.without_lost(owner, existing), read_policy({}), frozenset({SCHEDULER_NAME}))
    assert minimum(found) == expected


def test_the_minimum_of_a_job_is_never_above_what_runs() -> None:
    """Its annotation may be, when the Job ends."""
    assert minimum(shape_of(job.KIND, {"parallelism": 4, "template": OURS}, min_count="6")) == 4
    assert minimum(shape_of(job.KIND, {"parallelism": 4, "template": OURS}, min_count="3")) == 3
