"""Volcano: PodGroups, an annotation of pods, and Jobs of tasks, which become JobSets."""

from collections.abc import Iterator
from typing import Any

from cpg_api.integrations.policy import MIN_COUNT, PREFERRED, REQUIRED
from cpg_cli.conversion.documents import Plain
from cpg_cli.conversion.formats import ConversionOptions, ManifestFormat, Note, group_manifest, kept_metadata
from cpg_cli.conversion.pods import copy_of, take

ANNOTATIONS = ("scheduling.volcano.sh/group-name", "scheduling.k8s.io/group-name")
QUEUES = "has no equivalent: use Kueue or a ResourceQuota"
DEFAULT_RESTARTS = 3
OF_GROUPS = {
    "queue": QUEUES,
    "minResources": "is not needed: the requests of the pods count",
    "minTaskMember": "has no equivalent: a PodGroup for each task, below a CompositePodGroup, has a minimum of its own",
}
OF_JOBS = {
    "queue": QUEUES,
    "plugins": "has no equivalent: the JobSet controller gives pods a network and an index",
    "volumes": "has no equivalent: write the volumes in the pod templates",
    "minSuccess": "has no equivalent: see spec.successPolicy of the JobSet",
}
KEPT = {"tasks", "minAvailable", "schedulerName", "networkTopology", "priorityClassName", "policies", "maxRetry"}
KEPT |= {"ttlSecondsAfterFinished"}
TASK_FIELDS = {"name", "replicas", "minAvailable", "template", "dependsOn"}


def _owns(plain: Plain) -> bool:
    return str(plain.get("apiVersion")).partition("/")[0].endswith(".volcano.sh")


def _convert(plain: Plain, options: ConversionOptions, note: Note) -> Plain | None:
    api_group = str(plain["apiVersion"]).partition("/")[0]
    kind = (api_group, plain.get("kind"))
    if kind == ("scheduling.volcano.sh", "PodGroup"):
        return _group(plain, options, note)
    if kind == ("batch.volcano.sh", "Job"):
        return _job_set(plain, options, note)
    reason = "is not needed: domains are node labels" if plain.get("kind") == "HyperNode" else QUEUES
    note(f"left out: it {reason}")
    return None


def _group(plain: Plain, options: ConversionOptions, note: Note) -> Plain:
    old = plain.get("spec") or {}
    for name in sorted(old.keys() - {"minMember", "priorityClassName", "networkTopology"}):
        note(f"spec.{name} {OF_GROUPS.get(name, 'has no equivalent')}")
    spec: Plain = {"schedulingPolicy": {"gang": {"minCount": max(int(old.get("minMember") or 1), 1)}}}
    mode, label = _topology(old, options, note)
    if label:
        spec["schedulingConstraints"] = {"topology" if mode == "hard" else "preferredTopology": [{"key": label}]}
    if old.get("priorityClassName"):
        spec["priorityClassName"] = old["priorityClassName"]
    return group_manifest("PodGroup", plain, spec)


def _topology(spec: Plain, options: ConversionOptions, note: Note) -> tuple[str, str]:
    """Return the mode and the node label of a network topology; an empty label without one, or without a known tier."""
    asked = spec.get("networkTopology")
    if not asked:
        return "", ""
    mode, tier = asked.get("mode") or "hard", str(asked.get("highestTierName") or asked.get("highestTierAllowed"))
    if tier not in options.tiers:
        note(f"spec.networkTopology: tier {tier} is no node label; name it by --tier {tier}=LABEL")
    return mode, options.tiers.get(tier, "")


def _job_set(plain: Plain, options: ConversionOptions, note: Note) -> Plain:
    old = plain.get("spec") or {}
    for name in sorted(old.keys() - KEPT):
        note(f"spec.{name} {OF_JOBS.get(name, 'has no equivalent')}")
    metadata = kept_metadata(plain)
    annotations = dict(_annotations(old, options, note))
    if annotations:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
    jobs = [_replicated_job(task, number, old, options, note) for number, task in enumerate(old.get("tasks") or [])]
    spec: Plain = {"replicatedJobs": jobs}
    restarts = _restarts(old, note)
    if restarts:
        spec["failurePolicy"] = {"maxRestarts": restarts}
    if old.get("ttlSecondsAfterFinished") is not None:
        spec["ttlSecondsAfterFinished"] = old["ttlSecondsAfterFinished"]
    return {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}


def _annotations(spec: Plain, options: ConversionOptions, note: Note) -> Iterator[tuple[str, str]]:
    """Yield the annotations of the JobSet: its domain, and how many pods of each task are enough."""
    mode, label = _topology(spec, options, note)
    if label:
        yield (REQUIRED if mode == "hard" else PREFERRED), label
    tasks = spec.get("tasks") or []
    sizes = [int(task.get("replicas", 1)) for task in tasks]
    minimums = [int(task.get("minAvailable") or size) for task, size in zip(tasks, sizes, strict=True)]
    if minimums != sizes:
        if len(set(minimums)) == 1:
            yield MIN_COUNT, str(minimums[0])
        else:
            note("tasks with different minAvailable have no equivalent in a JobSet: write a Workload of your own")
    whole = spec.get("minAvailable")
    if whole is not None and int(whole) < sum(minimums):
        note(f"spec.minAvailable {whole} has no equivalent: the minimum is {sum(minimums)} pods, that of each task")


def _replicated_job(task: Plain, number: int, job: Plain, options: ConversionOptions, note: Note) -> Plain:
    name = task.get("name") or f"default{number}"
    for field in sorted(task.keys() - TASK_FIELDS):
        note(f"spec.tasks[{name}].{field} has no equivalent")
    template = copy_of(task.get("template") or {})
    pods = template.setdefault("spec", {})
    pods["schedulerName"] = options.scheduler_name
    pods.setdefault("restartPolicy", "OnFailure")
    if job.get("priorityClassName"):
        pods.setdefault("priorityClassName", job["priorityClassName"])
    size = int(task.get("replicas", 1))
    found: Plain = {
        "name": name,
        "template": {"spec": {"parallelism": size, "completions": size, "template": template}},
    }
    before: list[Any] = (task.get("dependsOn") or {}).get("name") or []
    if len(before) > 1:
        note(f"spec.tasks[{name}].dependsOn: a replicated job can depend on one other; {before[0]} is kept")
    if before:
        found["dependsOn"] = [{"name": before[0], "status": "Ready"}]
    return found


def _restarts(spec: Plain, note: Note) -> int:
    """Return how often the whole JobSet starts again."""
    policies = spec.get("policies") or []
    others = [one for one in policies if one.get("action") not in {"RestartJob", "CompleteJob"}]
    if others:
        note("spec.policies: see spec.failurePolicy of the JobSet for other actions than RestartJob")
    restarts = any(one.get("action") == "RestartJob" for one in policies)
    return int(spec.get("maxRetry") or DEFAULT_RESTARTS) if restarts else 0


def _group_of(pod: Plain) -> str | None:
    return take(pod, "annotations", ANNOTATIONS)


FORMAT = ManifestFormat(
    "volcano", _owns, _convert, _group_of, scheduler_names=("volcano",), foreign_keys=("volcano.sh/",)
)
