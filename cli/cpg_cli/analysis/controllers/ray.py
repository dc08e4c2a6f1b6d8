"""RayClusters, and the RayJobs and RayServices that make them."""

from collections.abc import Iterator

from msgspec import convert

from cpg_api.integrations import ray as rules
from cpg_cli.analysis.controllers.objects import (
    ObjectKey,
    Observed,
    Plain,
    controlled,
    digest,
    find,
    items,
    pod_from,
)

WAITS_FOR_HEAD = {
    "name": "wait-gcs-ready",
    "resources": {"requests": {"cpu": "200m", "memory": "256Mi"}, "limits": {"cpu": "200m", "memory": "256Mi"}},
}
"""The init container of every worker."""
AUTOSCALER = {
    "name": "autoscaler",
    "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}},
}
"""The container beside a head that scales its cluster."""
SUBMITTER = {
    "name": "ray-job-submitter",
    "resources": {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
}
CLUSTER_MODES = ("K8sJobMode", "")


def ray_cluster(owner: Plain, observed: Observed) -> Iterator[Plain]:
    """Yield the head and the workers of a RayCluster."""
    spec, name = owner["spec"], owner["metadata"]["name"]
    if spec.get("suspend"):
        observed.note(f"RayCluster {name} is suspended: it has no pods until it is resumed")
        return
    head = find(spec, "headGroupSpec", "template") or {}
    beside = [AUTOSCALER] if spec.get("enableInTreeAutoscaling") else []
    containers = {"containers": [*items(head, "spec", "containers"), *beside]}
    yield pod_from(owner, head, f"{name}-head", labels=_labels(name, rules.HEAD, "head"), spec=containers)
    for group in items(spec, "workerGroupSpecs"):
        role, template = group["groupName"], group.get("template") or {}
        waits = {"initContainers": [*items(template, "spec", "initContainers"), WAITS_FOR_HEAD]}
        sizes = convert({**group, "template": {}}, rules.WorkerGroup)
        for number in range(sizes.minimum(autoscales=False)):
            labels = {**_labels(name, role, "worker"), **_replica_labels(number, sizes)}
            yield pod_from(owner, template, f"{name}-{role}-worker-{number}", labels=labels, spec=waits)


def _labels(cluster: str, group: str, kind: str) -> dict[str, str]:
    return {
        rules.CLUSTER: cluster,
        rules.GROUP: group,
        "ray.io/node-type": kind,
        "ray.io/is-ray-node": "yes",
        "ray.io/identifier": f"{cluster}-{kind}",
    }


def _replica_labels(number: int, sizes: rules.WorkerGroup) -> dict[str, str]:
    hosts = max(sizes.num_of_hosts, 1)
    labels = {"ray.io/worker-group-replica-index": str(number // hosts)}
    return labels | ({"ray.io/replica-host-index": str(number % hosts)} if hosts > 1 else {})


def ray_job(owner: Plain, observed: Observed) -> Iterator[Plain]:
    """Yield the RayCluster of a RayJob, and once that runs the Job that submits the program."""
    spec, meta = owner["spec"], owner["metadata"]
    if spec.get("suspend"):
        observed.note(f"RayJob {meta['name']} is suspended: it has no pods until it is resumed")
        return
    if "rayClusterSpec" not in spec:
        observed.note(f"RayJob {meta['name']} uses a RayCluster that exists")
        return
    cluster = _cluster(owner, spec["rayClusterSpec"])
    yield cluster
    key = ObjectKey("RayCluster", meta["namespace"], cluster["metadata"]["name"])
    if spec.get("submissionMode", "") in CLUSTER_MODES and observed.is_placed(key):
        template = spec.get("submitterPodTemplate") or {"spec": {"containers": [SUBMITTER]}}
        submitter = {"parallelism": 1, "completions": 1, "template": template}
        yield controlled(owner, "batch/v1", "Job", meta["name"], spec=submitter)


def ray_service(owner: Plain, _: Observed) -> Iterator[Plain]:
    """Yield the RayCluster of a RayService."""
    yield _cluster(owner, find(owner, "spec", "rayClusterConfig") or {})


def _cluster(owner: Plain, spec: Plain) -> Plain:
    name = owner["metadata"]["name"]
    return controlled(owner, "ray.io/v1", "RayCluster", f"{name}-{digest(name, 5)}", spec=spec)
