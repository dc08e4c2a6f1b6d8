"""Seeded cases of clusters and submissions: what simulate predicts for them is compared with a scheduler.

The submitted trees of a case have different priorities, and the pods of a group are alike. So the order of attempts
does not depend on times, and a pod may take the place of another one of its group. Pods that preempt none have the
lowest priority: above others, they would compete with these for the room of their victims. Owners are those of the
seeded runs (``tests/e2e/owners/model.py``): their model says which pods they have, without the code of the command.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.e2e.owners.model import BLOCK, KINDS, RACK, Owner

from cpg_api.scheduling.names import API_VERSION, GANG, INSTANTIATE, POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_cli.cluster.documents import Document
from cpg_lab.nodes import NodePool, manifest

Plain = dict[str, Any]
SUBMITTED = 1767225600.0
CREATED = "2026-01-01T00:00:00Z"
"""The same time, as the API server writes it."""
CASE = "example.com/case"
RUNNING_CLASSES = {"fuzz-000": 0, "fuzz-100": 100, "fuzz-200": 200}
SUBMITTED_CLASSES = {"fuzz-150": 150, "fuzz-300": 300, "fuzz-400": 400, "fuzz-500": 500}
NEVER = "fuzz-050"
CLASSES = {**RUNNING_CLASSES, **SUBMITTED_CLASSES, NEVER: 50}


def priority_classes() -> Iterator[Plain]:
    """Yield the priority classes of all cases."""
    for name, value in CLASSES.items():
        policy: Plain = {"preemptionPolicy": "Never"} if name == NEVER else {}
        yield _object("scheduling.k8s.io/v1", "PriorityClass", name, value=value, **policy)


@dataclass
class SimulatedCase:
    """A cluster, and what is submitted to it."""

    seed: int
    nodes: list[Plain] = field(default_factory=list)
    running: list[Plain] = field(default_factory=list)
    """Groups and pods that have nodes."""
    submitted: list[Plain] = field(default_factory=list)
    owners: list[tuple[Owner, Plain]] = field(default_factory=list)
    """Owners, each with its pod template."""

    @property
    def namespace(self) -> str:
        """The namespace of all its objects."""
        return f"case-{self.seed}"

    @property
    def waits(self) -> bool:
        """Whether some pods are created only once others have nodes."""
        return any(slot.after for owner, _ in self.owners for slot in owner.slots())

    def documents(self) -> list[Document]:
        """Return what is submitted."""
        owners = [owner.manifest(template) for owner, template in self.owners]
        return [Document(f"case, document {number}", one) for number, one in enumerate([*self.submitted, *owners], 1)]

    def cluster(self) -> list[Document]:
        """Return the cluster before."""
        objects = [*priority_classes(), *self.nodes, *self.running]
        return [Document(f"cluster, document {number}", one) for number, one in enumerate(objects, 1)]


def generate(seed: int) -> SimulatedCase:
    """Return the case of a seed."""
    rng = Random(seed)  # noqa: S311  # a case can be repeated
    case = SimulatedCase(seed)
    cpus = rng.choice((2, 3, 4))
    counts = rng.randint(1, 2), rng.randint(1, 3), rng.randint(1, 3)
    labels = ((CASE, case.namespace),)
    pool = NodePool(counts=counts, prefix=case.namespace, capacity=_capacity(cpus), labels=labels)
    case.nodes = [_node(case, pool, place) for place in pool.positions()]
    free = dict.fromkeys(pool.names(), cpus)
    _run(case, rng, free)
    makers = [_gang, _gang, _tree, _workload, _owner, _owner, _pods, _deployment]
    classes = rng.sample([*SUBMITTED_CLASSES, NEVER], rng.randint(1, 3))
    for number, name in enumerate(classes):
        rng.choice(makers)(case, rng, f"s{number}", name)
    templates = [one["spec"].get("template", one) for one in case.submitted if one["kind"] in {"Pod", "Deployment"}]
    for one in (*templates, *(template for _, template in case.owners)):
        one["spec"]["nodeSelector"] = {CASE: case.namespace}  # several cases share a cluster
    return case


def _node(case: SimulatedCase, pool: NodePool, place: Sequence[int]) -> Plain:
    """Return a node in a block and a rack of its case alone."""
    node: Plain = manifest(pool, place, now=CREATED)
    labels = node["metadata"]["labels"]
    labels |= {key: f"{case.namespace}-{labels[key]}" for key in (BLOCK, RACK)}
    return node


def _capacity(cpus: int) -> tuple[tuple[str, str], ...]:
    return ("cpu", str(cpus)), ("memory", "16Gi"), ("pods", "99")


def _run(case: SimulatedCase, rng: Random, free: dict[str, int]) -> None:
    """Fill a part of the cluster, with single pods and with gangs that are evicted as a whole."""
    wanted = int(sum(free.values()) * rng.choice((0.0, 0.3, 0.6, 0.9, 1.0)))
    number = 0
    while wanted > 0:
        number += 1
        name, klass = f"r{number}", rng.choice(sorted(RUNNING_CLASSES))
        size = min(rng.choice((1, 1, 2, 3)), wanted)
        if size > 1:
            mode: Plain = {rng.choice(("all", "single")): {}}
            case.running.append(_pod_group(name, size, klass, disruptionMode=mode))
        for index in range(size):
            node = rng.choice(sorted(node for node, room in free.items() if room))
            free[node] -= 1
            case.running.append(_pod(f"{name}-{index}", name if size > 1 else "", 1, klass, nodeName=node))
        wanted -= size


def _gang(case: SimulatedCase, rng: Random, name: str, klass: str) -> None:
    """Add a gang, now and then with more pods than its minimum or too few."""
    minimum = rng.randint(1, 5)
    pods = max(minimum + rng.choice((0, 0, 0, 1, 2, -1)), 0)
    case.submitted.append(_pod_group(name, minimum, klass, **_topology(rng)))
    cpu = rng.choice((1, 1, 2))
    case.submitted += [_pod(f"{name}-{index}", name, cpu, klass) for index in range(pods)]


def _tree(case: SimulatedCase, rng: Random, name: str, klass: str) -> None:
    """Add a tree of groups that are written out."""
    replicas, sizes = rng.randint(1, 3), {"workers": rng.randint(1, 3), "driver": 1}
    case.submitted.append(_workload_object(rng, name, klass, replicas, sizes, {}))
    (root,) = case.submitted[-1]["spec"]["compositePodGroupTemplates"]
    (replica,) = root["compositePodGroupTemplates"]
    case.submitted.append(_group_of(name, "CompositePodGroup", name, root, ""))
    for number in range(replicas):
        case.submitted.append(_group_of(name, "CompositePodGroup", f"{name}-{number}", replica, name))
        for template in replica["podGroupTemplates"]:
            leaf = f"{name}-{template['name']}-{number}"
            case.submitted.append(_group_of(name, "PodGroup", leaf, template, f"{name}-{number}"))
            case.submitted += [_pod(f"{leaf}-{index}", leaf, 1, klass) for index in range(sizes[template["name"]])]


def _workload(case: SimulatedCase, rng: Random, name: str, klass: str) -> None:
    """Add a Workload from which the operator makes the groups."""
    replicas, sizes = rng.randint(1, 3), {"workers": rng.randint(1, 3), "driver": 1}
    case.submitted.append(_workload_object(rng, name, klass, replicas, sizes, {INSTANTIATE: "true"}))
    for number in range(replicas):
        for role, size in sizes.items():
            leaf = f"{name}-{role}-{number}"
            case.submitted += [_pod(f"{leaf}-{index}", leaf, 1, klass) for index in range(size)]


def _owner(case: SimulatedCase, rng: Random, name: str, klass: str) -> None:
    """Add an owner of another project."""
    owner = KINDS[rng.choice(sorted(KINDS))].random(name, rng)
    case.owners.append((owner, {"spec": _pod_spec(1, klass)}))


def _pods(case: SimulatedCase, rng: Random, name: str, klass: str) -> None:
    """Add pods in no group."""
    case.submitted += [_pod(f"{name}-{index}", "", 1, klass) for index in range(rng.randint(1, 3))]


def _deployment(case: SimulatedCase, rng: Random, name: str, klass: str) -> None:
    """Add a Deployment; its pods form a basic group."""
    labels = {"app": name, GANG: "true"}
    annotations = {"scheduling.cpg.dev/required-topology": RACK} if rng.random() < 0.5 else {}
    template = {"metadata": {"labels": labels}, "spec": {**_pod_spec(1, klass), "restartPolicy": "Always"}}
    spec = {"replicas": rng.randint(1, 4), "selector": {"matchLabels": {"app": name}}, "template": template}
    case.submitted.append(_object("apps/v1", "Deployment", name, annotations=annotations, spec=spec))


def _topology(rng: Random) -> Plain:
    key = rng.choice((None, RACK, BLOCK))
    return {"schedulingConstraints": {"topology": [{"key": key}]}} if key else {}


def _workload_object(
    rng: Random, name: str, klass: str, replicas: int, sizes: dict[str, int], annotations: dict[str, str]
) -> Plain:
    common: Plain = {"priorityClassName": klass}
    if rng.random() < 0.3:
        common["disruptionMode"] = {"all": {}}
    leaves = [
        {"name": role, **common, "schedulingPolicy": {"gang": {"minCount": size}}} for role, size in sizes.items()
    ]
    below = {"podGroupTemplates": leaves, "schedulingPolicy": {"gang": {"minGroupCount": len(leaves)}}}
    replica = {"name": "replica", **common, **below, **_topology(rng)}
    if annotations:
        replica["replicas"] = replicas
    minimum = rng.randint(1, replicas)
    policy = {"schedulingPolicy": {"gang": {"minGroupCount": minimum}}, "compositePodGroupTemplates": [replica]}
    constraints = {"schedulingConstraints": {"topology": [{"key": BLOCK}]}} if rng.random() < 0.5 else {}
    root = {"name": "root", **common, **policy, **constraints}
    spec = {"compositePodGroupTemplates": [root]}
    return _object(API_VERSION, "Workload", name, annotations=annotations, spec=spec)


def _group_of(workload: str, kind: str, name: str, template: Plain, parent: str) -> Plain:
    fields = ("schedulingPolicy", "schedulingConstraints", "disruptionMode", "priorityClassName")
    spec: Plain = {field: template[field] for field in fields if field in template}
    spec["workloadRef"] = {"workloadName": workload, "templateName": template["name"]}
    if parent:
        spec["parentCompositePodGroupName"] = parent
    return _object(API_VERSION, kind, name, spec=spec)


def _pod_group(name: str, minimum: int, klass: str, **spec: Any) -> Plain:
    policy = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "priorityClassName": klass}
    return _object(API_VERSION, "PodGroup", name, spec={**policy, **spec})


def _pod(name: str, group: str, cpu: int, klass: str, **spec: Any) -> Plain:
    labels = {POD_GROUP_LABEL: group} if group else {}
    return _object("v1", "Pod", name, labels=labels, spec={**_pod_spec(cpu, klass), **spec})


def _pod_spec(cpu: int, klass: str) -> Plain:
    resources = {"requests": {"cpu": str(cpu)}}
    return {
        "schedulerName": SCHEDULER_NAME,
        "priorityClassName": klass,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "none", "resources": resources}],
    }


def _object(
    api_version: str,
    kind: str,
    name: str,
    *,
    labels: Plain | None = None,
    annotations: Plain | None = None,
    **rest: Any,
) -> Plain:
    meta = {"name": name, "labels": labels or {}, "annotations": annotations or {}}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, **rest}
