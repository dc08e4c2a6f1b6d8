"""JobSets, and the TrainJobs that make them."""

from collections.abc import Iterator

from cpg_api.integrations import jobset as rules
from cpg_api.integrations.job import INDEXED
from cpg_cli.analysis.controllers.core import JOB_KEY, JOBSET_PRIORITY
from cpg_cli.analysis.controllers.objects import (
    ObjectKey,
    Observed,
    Plain,
    annotations_of,
    controlled,
    count,
    digest,
    find,
    items,
    key_of,
    labels_of,
    with_labels,
)

DOMAIN = "jobset.sigs.k8s.io"
NAMESPACED_JOB, NO_SCHEDULE = "alpha.jobset.sigs.k8s.io/namespaced-job", "alpha.jobset.sigs.k8s.io/no-schedule"
COMPLETE = "Complete"
RUNTIMES = ("ClusterTrainingRuntime", "TrainingRuntime")
STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
TRAINER = "trainer"


def job_set(owner: Plain, observed: Observed) -> Iterator[Plain]:
    """Yield the Jobs of a JobSet, as far as those that come before them have started or completed."""
    spec, name = owner["spec"], owner["metadata"]["name"]
    if spec.get("suspend"):
        observed.note(f"JobSet {name} is suspended: it has no pods until it is resumed")
        return
    in_order = find(spec, "startupPolicy", "startupPolicyOrder") == rules.IN_ORDER
    total = sum(count(one, "replicas") for one in items(spec, "replicatedJobs"))
    number, earlier = 0, dict[str, list[ObjectKey]]()
    for role in items(spec, "replicatedJobs"):
        before = list(earlier) if in_order else []
        waits = [(one, "Ready") for one in before]
        waits += [(one["name"], one.get("status", "Ready")) for one in items(role, "dependsOn")]
        jobs = [_job(owner, role, index, number + index, total, observed) for index in range(count(role, "replicas"))]
        number += len(jobs)
        is_due = all(_has_reached(observed, earlier.get(one, []), status) for one, status in waits)
        if waits:
            observed.note(_waiting_note(name, role["name"], waits))
        if is_due:
            yield from jobs
        earlier[role["name"]] = [key_of(job) for job in jobs]


def _has_reached(observed: Observed, jobs: list[ObjectKey], status: str) -> bool:
    """Return whether Jobs run, or have completed, which they do as soon as all of their pods have nodes."""
    reached = observed.complete if status == COMPLETE else observed.is_placed
    return not [job for job in jobs if not reached(job)]


def _waiting_note(name: str, role: str, waits: list[tuple[str, str]]) -> str:
    after = " and ".join(f"{one} {'has completed' if status == COMPLETE else 'runs'}" for one, status in waits)
    return f"JobSet {name}: the Jobs of {role} are created once {after}; pods run or complete here once they have nodes"


def _job(owner: Plain, role: Plain, index: int, number: int, total: int, observed: Observed) -> Plain:
    """Return one Job of a replicated job."""
    meta, template = owner["metadata"], role["template"]
    name = f"{meta['name']}-{role['name']}-{index}"
    spec = {"completionMode": INDEXED, **(template.get("spec") or {})}
    pod_spec = find(spec, "template", "spec") or {}
    marks = {
        rules.NAME: meta["name"],
        rules.UID: meta["uid"],
        rules.ROLE: role["name"],
        f"{DOMAIN}/replicatedjob-replicas": str(count(role, "replicas")),
        rules.INDEX: str(index),
        f"{DOMAIN}/job-global-index": str(number),
        f"{DOMAIN}/global-replicas": str(total),
        f"{DOMAIN}/restart-attempt": "0",
        JOB_KEY: digest(f"{meta['namespace']}/{name}", 40),
    }
    both = {**annotations_of(owner), **annotations_of(template)}
    annotations = {key: both[key] for key in (rules.EXCLUSIVE_TOPOLOGY, rules.NODE_SELECTOR) if key in both}
    labels = {**marks, JOBSET_PRIORITY: str(observed.priority(pod_spec))}
    pods = with_labels(spec.get("template"), labels, {**marks, **annotations})
    if rules.NODE_SELECTOR in annotations:
        selector = {**(pod_spec.get("nodeSelector") or {}), NAMESPACED_JOB: f"{meta['namespace']}_{name}"}
        toleration = {"key": NO_SCHEDULE, "operator": "Exists", "effect": "NoSchedule"}
        tolerations = [*items(pod_spec, "tolerations"), toleration]
        pods = {**pods, "spec": {**pod_spec, "nodeSelector": selector, "tolerations": tolerations}}
    return controlled(
        owner,
        "batch/v1",
        "Job",
        name,
        spec={**spec, "template": pods},
        labels={**labels_of(template), **marks},
        annotations={**annotations_of(template), **marks},
    )


def train_job(owner: Plain, observed: Observed) -> Iterator[Plain]:
    """Yield the JobSet of a TrainJob, if the files have its runtime."""
    spec, meta = owner["spec"], owner["metadata"]
    reference = find(spec, "runtimeRef") or {}
    kind, runtime_name = reference.get("kind", RUNTIMES[0]), reference.get("name", "")
    runtime = observed.find(kind, meta["namespace"] if kind == RUNTIMES[1] else "", runtime_name)
    if runtime is None:
        observed.note(f"TrainJob {meta['name']} is not simulated: the files lack its {kind} {runtime_name}")
        return
    nodes = count(spec, "trainer", "numNodes", default=count(runtime, "spec", "mlPolicy", "numNodes"))
    template = find(runtime, "spec", "template") or {}
    roles = [_role(one, nodes, spec) for one in items(template, "spec", "replicatedJobs")]
    annotations = annotations_of(template)
    for patch in items(spec, "runtimePatches"):
        annotations = {**annotations, **annotations_of(find(patch, "trainingRuntimeSpec", "template") or {})}
    yield controlled(
        owner,
        "jobset.x-k8s.io/v1alpha2",
        "JobSet",
        meta["name"],
        spec={**(template.get("spec") or {}), "replicatedJobs": roles, "suspend": bool(spec.get("suspend"))},
        labels=labels_of(template),
        annotations=annotations,
    )


def _role(role: Plain, nodes: int, spec: Plain) -> Plain:
    """Return a replicated job of a runtime; the one that trains has a pod for each node."""
    template = role["template"]
    if labels_of(template).get(STEP) != TRAINER:
        return role
    job = {**(template.get("spec") or {}), "parallelism": nodes, "completions": nodes}
    resources = find(spec, "trainer", "resourcesPerNode")
    if resources:
        pod_spec = find(job, "template", "spec") or {}
        changed = {"resources": resources}
        containers = [{**one, **changed} if one.get("name") == "node" else one for one in items(pod_spec, "containers")]
        job["template"] = {**job["template"], "spec": {**pod_spec, "containers": containers}}
    return {**role, "template": {**template, "spec": job}}
