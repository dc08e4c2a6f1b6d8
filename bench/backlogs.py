"""The cases of the side-by-side benchmark: the backlog at the start of a scheduler, the nodes, and the goal.

Groups are created before their pods, so that no scheduler sees a pod without its group.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_client.resources import NATIVE_COMPOSITE_POD_GROUPS, NATIVE_POD_GROUPS, PODS, PRIORITY_CLASSES, Resource
from cpg_lab import devices
from cpg_lab.nodes import TOPOLOGY, NodePool

Body = dict[str, Any]
Item = tuple[str, Body]
"""The path of a collection, and an object to create in it."""
Backlog = Callable[[str], Iterator[Item]]
"""The pods and groups for the scheduler of that name."""

NAMESPACE = "default"
FILLER_SCHEDULER = "none"
"""The schedulerName of pods that are created with a node."""
BLOCK, RACK = f"{TOPOLOGY}/block", f"{TOPOLOGY}/rack"
URGENT = "urgent"
SMALL = {"cpu": "100m", "memory": "64Mi"}


@dataclass(frozen=True)
class CaseSize:
    """The nodes and the backlog of a case."""

    nodes: NodePool
    backlog: Backlog
    has_claims: bool = False
    """Whether pods have claims from templates, which have to be made before a scheduler starts."""


@dataclass(frozen=True)
class Case:
    """A case, which the command line selects by name.

    ``goal`` is the least ratio of kube-scheduler's time to ours, ``share`` the least share of the limit of binds that
    ours has to reach.
    """

    name: str
    title: str
    goal: float
    full: CaseSize
    quick: CaseSize
    share: float = 0.0


def pod(name: str, scheduler: str, requests: dict[str, str], **spec: object) -> Item:
    """Return a pod of one container."""
    container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    whole = {"schedulerName": scheduler, "containers": [container], **spec}
    return PODS.path(NAMESPACE), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": whole}


def member(group: str, index: int, scheduler: str) -> Item:
    """Return a small pod of a group."""
    return pod(f"{group}-{index}", scheduler, SMALL, schedulingGroup={"podGroupName": group})


def gang(resource: Resource, name: str, minimum: int, key: str | None = None, **spec: object) -> Item:
    """Return a gang of pods or of groups, required in one domain of the key if one is given."""
    field = "minCount" if resource is NATIVE_POD_GROUPS else "minGroupCount"
    whole: Body = {"schedulingPolicy": {"gang": {field: minimum}}, **spec}
    if key is not None:
        whole["schedulingConstraints"] = {"topology": [{"key": key}]}
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": whole}
    return resource.path(NAMESPACE), body


def plain_backlog(number: int) -> Backlog:
    """Return pods without a group."""
    return lambda scheduler: (pod(f"pod-{index}", scheduler, SMALL) for index in range(number))


def gang_backlog(number: int, size: int, key: str | None = None) -> Backlog:
    """Return flat gangs."""

    def backlog(scheduler: str) -> Iterator[Item]:
        names = [f"gang-{index}" for index in range(number)]
        yield from (gang(NATIVE_POD_GROUPS, name, size, key) for name in names)
        yield from (member(name, index, scheduler) for name in names for index in range(size))

    return backlog


def tree_backlog(number: int, size: int) -> Backlog:
    """Return trees: a root in one block with two composite groups of two gangs each, every gang in one rack."""
    reference = {"workloadName": "bench", "templateName": "part"}

    def composite(name: str, key: str | None = None, **spec: object) -> Item:
        return gang(NATIVE_COMPOSITE_POD_GROUPS, name, 2, key, workloadRef=reference, **spec)

    def leaf(name: str, parent: str) -> Item:
        return gang(NATIVE_POD_GROUPS, name, size, RACK, workloadRef=reference, parentCompositePodGroupName=parent)

    def backlog(scheduler: str) -> Iterator[Item]:
        roots = [f"tree-{index}" for index in range(number)]
        inner = [(f"{root}-{side}", root) for root in roots for side in ("a", "b")]
        leaves = [(f"{name}-{side}", name) for name, _ in inner for side in ("a", "b")]
        yield from (composite(root, BLOCK) for root in roots)
        yield from (composite(name, parentCompositePodGroupName=parent) for name, parent in inner)
        yield from (leaf(name, parent) for name, parent in leaves)
        yield from (member(name, index, scheduler) for name, _ in leaves for index in range(size))

    return backlog


def jobset_pod(jobset: str, job: int, number: int) -> Body:
    """Return the metadata that the controllers of JobSets and Jobs give a pod, as the owner of its group."""
    name, of_jobset = f"{jobset}-workers-{job}", "jobset.sigs.k8s.io"
    uid = f"00000000-0000-4000-8000-{int(jobset.rpartition('-')[2]):06}{job:06}"
    values = {
        "global-replicas": str(JOBS_OF_JOBSET),
        "group-name": "default",
        "group-replicas": str(JOBS_OF_JOBSET),
        "job-global-index": str(job),
        "job-group-index": str(job),
        "job-index": str(job),
        "job-key": f"{int(uid[-12:]):040x}",
        "jobset-name": jobset,
        "jobset-uid": uid,
        "replicatedjob-name": "workers",
        "replicatedjob-replicas": str(JOBS_OF_JOBSET),
        "restart-attempt": "0",
    }
    annotations = {f"{of_jobset}/{key}": value for key, value in values.items()}
    annotations["batch.kubernetes.io/job-completion-index"] = str(number)
    labels = {**annotations, "batch.kubernetes.io/job-name": name, "batch.kubernetes.io/controller-uid": uid}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}
    meta = {"name": f"{name}-{number}", "labels": labels, "annotations": annotations, "ownerReferences": [owner]}
    return {**meta, "finalizers": ["batch.kubernetes.io/job-tracking"]}


JOBS_OF_JOBSET = 3


def jobset_backlog(number: int, size: int, *, by_label: bool) -> Backlog:
    """Return gangs of the Jobs of JobSets, whose pods derive their groups, or name them in a label as well."""

    def backlog(scheduler: str) -> Iterator[Item]:
        jobs = [(f"js-{index}", job) for index in range(number) for job in range(JOBS_OF_JOBSET)]
        groups = {(jobset, job): f"jobset.{jobset}.workers.{job}" for jobset, job in jobs}
        yield from (gang(NATIVE_POD_GROUPS, group, size) for group in groups.values())
        for (jobset, job), group in groups.items():
            for index in range(size):
                path, body = pod("", scheduler, SMALL)
                body["metadata"] = jobset_pod(jobset, job, index)
                if by_label:
                    body["metadata"]["labels"][POD_GROUP_LABEL] = group
                yield path, body

    return backlog


def preemption_backlog(size: int, fillers: int, nodes: NodePool, *, each: int) -> Backlog:
    """Return a gang of high priority, and fillers that fill the nodes; each pod of the gang needs the room of ``each``.

    No kubelet is simulated, so the fillers have no grace period: an evicted pod is gone at once.
    """

    def backlog(scheduler: str) -> Iterator[Item]:
        body = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind, "value": 1000}
        yield PRIORITY_CLASSES.path(), {**body, "metadata": {"name": URGENT}}
        names = nodes.names()
        share = 4000 * len(names) // fillers
        for index in range(fillers):
            node = names[index % len(names)]
            yield pod(
                f"filler-{index}",
                FILLER_SCHEDULER,
                {"cpu": f"{share}m"},
                nodeName=node,
                terminationGracePeriodSeconds=0,
            )
        yield gang(NATIVE_POD_GROUPS, "urgent", size, priorityClassName=URGENT)
        group = {"podGroupName": "urgent"}
        for index in range(size):
            need = {"cpu": f"{each * share}m"}
            yield pod(f"urgent-{index}", scheduler, need, priorityClassName=URGENT, schedulingGroup=group)

    return backlog


def with_devices(backlog: Backlog, nodes: NodePool, each: int) -> Backlog:
    """Return a backlog whose pods claim a device each, from a template, with so many devices on each node."""
    claims = devices.pod_claims(template="gpu")

    def enlarged(scheduler: str) -> Iterator[Item]:
        manifests = (
            devices.device_class(),
            devices.claim_template("gpu", namespace=NAMESPACE),
            *devices.slices_of_nodes(nodes.names(), each),
        )
        yield from map(devices.create_request, manifests)
        for path, body in backlog(scheduler):
            yield path, {**body, "spec": {**body["spec"], **claims}} if body["kind"] == "Pod" else body

    return enlarged


LARGE = NodePool.parse("10 blocks x 5 racks x 100 nodes, cpu=4, memory=16Gi, pods=110")
SMALLER = NodePool.parse("10 blocks x 5 racks x 10 nodes, cpu=4, memory=16Gi, pods=110")


def placement_case(name: str, title: str, goal: float, full: Backlog, quick: Backlog, *, share: float = 0.6) -> Case:
    """Return a case without preemption, on 5,000 nodes or a tenth of them."""
    return Case(name, title, goal, CaseSize(LARGE, full), CaseSize(SMALLER, quick), share)


def device_case(name: str, title: str, goal: float, full: Backlog, quick: Backlog) -> Case:
    """Return such a case in which every pod claims one of the 8 devices of a node."""

    def sized(nodes: NodePool, backlog: Backlog) -> CaseSize:
        return CaseSize(nodes, with_devices(backlog, nodes, 8), has_claims=True)

    return Case(name, title, goal, sized(LARGE, full), sized(SMALLER, quick))


def preemption_case(name: str, title: str, goal: float, full: tuple[int, int, int], *, each: int) -> Case:
    """Return a case of preemption with so many pods of a gang, fillers and nodes, or a tenth of each."""

    def sized(size: int, fillers: int, nodes: int) -> CaseSize:
        pool = NodePool.parse(f"{nodes} nodes, cpu=4, memory=16Gi, pods=110")
        return CaseSize(pool, preemption_backlog(size, fillers, pool, each=each))

    return Case(name, title, goal, sized(*full), sized(*(number // 10 for number in full)))


CASES = (
    placement_case("plain", "3,000 plain pods", 1.3, plain_backlog(3000), plain_backlog(300), share=0.0),
    placement_case(
        "plain-labels",
        "3,000 pods with labels",
        1,
        jobset_backlog(100, 10, by_label=True),
        jobset_backlog(10, 10, by_label=True),
        share=0.0,
    ),
    placement_case(
        "plain-jobsets",
        "3,000 pods of JobSets",
        1,
        jobset_backlog(100, 10, by_label=False),
        jobset_backlog(10, 10, by_label=False),
        share=0.0,
    ),
    placement_case("small-gangs", "1,000 gangs x 3", 4, gang_backlog(1000, 3), gang_backlog(100, 3)),
    placement_case("large-gangs", "3 gangs x 1,000", 20, gang_backlog(3, 1000), gang_backlog(3, 100)),
    placement_case("rack-gangs", "750 gangs x 4, rack", 15, gang_backlog(750, 4, RACK), gang_backlog(75, 4, RACK)),
    placement_case(
        "large-rack-gangs", "3 gangs x 1,000, rack", 40, gang_backlog(3, 1000, RACK), gang_backlog(3, 100, RACK)
    ),
    placement_case("trees", "48 trees x 64", 20, tree_backlog(48, 16), tree_backlog(5, 16)),
    device_case("devices", "3 gangs x 1,000, devices", 10, gang_backlog(3, 1000), gang_backlog(3, 100)),
    device_case("device-trees", "48 trees x 64, devices", 10, tree_backlog(48, 16), tree_backlog(5, 16)),
    preemption_case("evicting-1000", "gang of 100 evicts 1,000", 1.5, (100, 1000, 100), each=10),
    preemption_case("evicting-500", "gang of 500 evicts 500", 5, (500, 5000, 1000), each=1),
    preemption_case("evicting-2500", "gang of 500 evicts 2,500", 5, (500, 5000, 1000), each=5),
)
