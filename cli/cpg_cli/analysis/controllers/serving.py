"""LeaderWorkerSets, and the DisaggregatedSets that make them."""

from collections.abc import Iterator

from cpg_api.integrations import disaggregatedset
from cpg_api.integrations import leaderworkerset as rules
from cpg_cli.analysis.controllers.core import POD_NAME
from cpg_cli.analysis.controllers.objects import (
    POD,
    ObjectKey,
    Observed,
    Plain,
    annotations_of,
    controlled,
    count,
    digest,
    exclusive_affinity,
    find,
    items,
    labels_of,
    pod_from,
    with_domain,
)

DOMAIN = "leaderworkerset.sigs.k8s.io"
WORKER_INDEX, GROUP_KEY, SUBGROUP_KEY = f"{DOMAIN}/worker-index", f"{DOMAIN}/group-key", f"{DOMAIN}/subgroup-key"
SIZE = f"{DOMAIN}/size"


def leader_worker_set(owner: Plain, observed: Observed) -> Iterator[Plain]:
    """Yield the pods of all replicas: leaders, and workers as soon as they can be created.

    The pods are those of StatefulSets, which are left out but for their references: they decide nothing.
    """
    meta, template = owner["metadata"], find(owner, "spec", "leaderWorkerTemplate") or {}
    for index in range(count(owner["spec"], "replicas")):
        leader = f"{meta['name']}-{index}"
        key = ObjectKey(POD, meta["namespace"], leader)
        yield _pod(owner, index, 0, observed)
        if _workers_wait(owner):
            observed.note(f"LeaderWorkerSet {meta['name']}: workers are created once their leader has a node")
            if not observed.is_placed(key):
                continue
        for worker in range(1, count(template, "size")):
            yield _pod(owner, index, worker, observed)


def _workers_wait(owner: Plain) -> bool:
    return owner["spec"].get("startupPolicy") == rules.LEADER_READY or rules.EXCLUSIVE_TOPOLOGY in annotations_of(owner)


def _pod(owner: Plain, index: int, worker: int, observed: Observed) -> Plain:
    """Return the leader of a replica, which is its pod 0, or a worker."""
    meta, template = owner["metadata"], find(owner, "spec", "leaderWorkerTemplate") or {}
    leader, namespace = f"{meta['name']}-{index}", meta["namespace"]
    pods = template.get("workerTemplate")
    if worker == 0:
        pods = template.get("leaderTemplate") or pods
    name = leader if worker == 0 else f"{leader}-{worker}"
    labels = {
        POD_NAME: name,
        rules.NAME: meta["name"],
        rules.INDEX: str(index),
        WORKER_INDEX: str(worker),
        GROUP_KEY: digest(f"{namespace}/{leader}", 40),
    }
    roles = {key: labels_of(owner)[key] for key in _ROLE_LABELS if key in labels_of(owner)}
    topologies = {key: annotations_of(owner)[key] for key in rules.TOPOLOGIES if key in annotations_of(owner)}
    subgroup = _subgroup(template, worker)
    if subgroup is not None:
        labels[rules.SUBGROUP] = str(subgroup)
        labels[SUBGROUP_KEY] = digest(f"{namespace}/{leader}/{subgroup}", 40)
    stateful_set = controlled(owner, "apps/v1", "StatefulSet", meta["name"] if worker == 0 else leader, spec={})
    annotations = {SIZE: str(count(template, "size")), **topologies}
    pod = pod_from(stateful_set, pods, name, labels={**labels, **roles}, annotations=annotations)
    pod["spec"].update(_placement(pod, ObjectKey(POD, namespace, leader), worker, observed))
    return pod


_ROLE_LABELS = (disaggregatedset.NAME, disaggregatedset.ROLE, disaggregatedset.REVISION)


def _subgroup(template: Plain, worker: int) -> int | None:
    """Return the subgroup of a pod; a leader that is excluded has none."""
    division = template.get("subGroupPolicy")
    if division is None:
        return None
    size = max(count(division, "subGroupSize"), 1)
    if division.get("subGroupPolicyType") == rules.LEADER_EXCLUDED:
        return (worker - 1) // size if worker else None
    if (count(template, "size") - 1) % size == 0:
        return max(worker - 1, 0) // size
    return worker // size


def _placement(pod: Plain, leader: ObjectKey, worker: int, observed: Observed) -> Plain:
    """Return what exclusive domains change in the spec of a pod: the leader chooses, and workers follow it."""
    spec, labels, annotations = pod["spec"], labels_of(pod), annotations_of(pod)
    topology, narrower = (annotations.get(key) for key in rules.TOPOLOGIES)
    exclusive = []
    change: Plain = {}
    if topology and worker == 0:
        exclusive.append((topology, GROUP_KEY, labels[GROUP_KEY]))
    elif topology:
        change = with_domain(spec, topology, observed.node_label(leader, topology) or "")
    if narrower and SUBGROUP_KEY in labels:
        exclusive.append((narrower, SUBGROUP_KEY, labels[SUBGROUP_KEY]))
    return {**change, **exclusive_affinity(spec, exclusive)} if exclusive else change


def disaggregated_set(owner: Plain, _: Observed) -> Iterator[Plain]:
    """Yield the LeaderWorkerSet of each role."""
    name, roles = owner["metadata"]["name"], items(owner, "spec", "roles")
    revision = digest(repr(roles), 8)
    for role in roles:
        labels = {
            disaggregatedset.NAME: name,
            disaggregatedset.ROLE: role["name"],
            disaggregatedset.REVISION: revision,
        }
        template = find(role, "template") or role
        yield controlled(
            owner,
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            f"{name}-{revision}-{role['name']}",
            spec=template.get("spec") or {},
            labels={**labels_of(template), **labels},
            annotations=annotations_of(template),
        )
