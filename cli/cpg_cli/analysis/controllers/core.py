"""Jobs, Deployments, ReplicaSets and StatefulSets of Kubernetes itself."""

from collections.abc import Iterator

from cpg_api.integrations.deployment import HASH
from cpg_api.integrations.job import COMPLETION_INDEX, INDEXED
from cpg_api.integrations.jobset import EXCLUSIVE_TOPOLOGY, NODE_SELECTOR
from cpg_api.integrations.statefulset import PARALLEL
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
    with_labels,
)

JOB_KEY, JOBSET_PRIORITY = "jobset.sigs.k8s.io/job-key", "jobset.sigs.k8s.io/priority"
POD_NAME = "statefulset.kubernetes.io/pod-name"


def job(owner: Plain, observed: Observed) -> Iterator[Plain]:
    """Yield the pods of a Job that run at once."""
    spec, name = owner["spec"], owner["metadata"]["name"]
    if spec.get("suspend"):
        observed.note(f"Job {name} is suspended: it has no pods until it is resumed")
        return
    parallelism = count(spec, "parallelism")
    completions = find(spec, "completions")
    size = parallelism if completions is None else min(parallelism, int(completions))
    template = spec.get("template") or {}
    labels = {"batch.kubernetes.io/job-name": name, "job-name": name}
    labels["batch.kubernetes.io/controller-uid"] = owner["metadata"]["uid"]
    is_indexed = spec.get("completionMode") == INDEXED
    for number in range(size):
        index = {COMPLETION_INDEX: str(number)} if is_indexed else {}
        pod = pod_from(owner, template, f"{name}-{number}", labels={**labels, **index}, annotations=index)
        topology = annotations_of(pod).get(EXCLUSIVE_TOPOLOGY)
        if topology and NODE_SELECTOR not in annotations_of(pod):
            change = _exclusive(owner, pod, number, topology, observed)
            if change is None:
                continue
            pod["spec"].update(change)
        yield pod


def _exclusive(owner: Plain, pod: Plain, number: int, topology: str, observed: Observed) -> Plain | None:
    """Return the change of a pod of a Job with a domain of its own; None while the pod cannot be created.

    The webhook of JobSet refuses all pods but the first until that has a node, and keeps them in its domain then.
    """
    spec, key = pod["spec"], labels_of(pod).get(JOB_KEY, "")
    priority = labels_of(pod).get(JOBSET_PRIORITY, "0")
    if number == 0:
        also = [{"key": JOBSET_PRIORITY, "operator": "In", "values": [priority]}]
        return exclusive_affinity(spec, [(topology, JOB_KEY, key)], also, namespaceSelector={})
    namespace, name = owner["metadata"]["namespace"], owner["metadata"]["name"]
    domain = observed.node_label(ObjectKey(POD, namespace, f"{name}-0"), topology)
    return None if domain is None else with_domain(spec, topology, domain)


def deployment(owner: Plain, _: Observed) -> Iterator[Plain]:
    """Yield the ReplicaSet of the present template."""
    spec, name = owner["spec"], owner["metadata"]["name"]
    suffix = digest(name, 10)
    labels = {HASH: suffix}
    template = with_labels(spec.get("template"), labels)
    yield controlled(
        owner,
        "apps/v1",
        "ReplicaSet",
        f"{name}-{suffix}",
        spec={"replicas": count(spec, "replicas"), "template": template},
        labels=labels_of(template),
        annotations=annotations_of(owner),
    )


def replica_set(owner: Plain, _: Observed) -> Iterator[Plain]:
    """Yield the pods of a ReplicaSet."""
    for number in range(count(owner["spec"], "replicas")):
        yield pod_from(owner, find(owner, "spec", "template"), f"{owner['metadata']['name']}-{number}")


def stateful_set(owner: Plain, observed: Observed) -> Iterator[Plain]:
    """Yield the pods and claims of a StatefulSet; without Parallel, a pod comes once the one before it runs."""
    spec, meta = owner["spec"], owner["metadata"]
    start = count(spec, "ordinals", "start", default=0)
    is_parallel = spec.get("podManagementPolicy") == PARALLEL
    for number in range(start, start + count(spec, "replicas")):
        name = f"{meta['name']}-{number}"
        labels = {POD_NAME: name, "apps.kubernetes.io/pod-index": str(number)}
        claims = {one["metadata"]["name"]: one for one in items(spec, "volumeClaimTemplates")}
        yield from (_claim(owner, claim, f"{key}-{name}") for key, claim in claims.items())
        volumes = [one for one in items(spec, "template", "spec", "volumes") if one.get("name") not in claims]
        volumes += [{"name": key, "persistentVolumeClaim": {"claimName": f"{key}-{name}"}} for key in claims]
        yield pod_from(owner, spec.get("template"), name, labels=labels, spec={"volumes": volumes})
        if not is_parallel and not observed.is_placed(ObjectKey(POD, meta["namespace"], name)):
            return


def _claim(owner: Plain, template: Plain, name: str) -> Plain:
    """Return the claim of one pod of a StatefulSet."""
    return controlled(owner, "v1", "PersistentVolumeClaim", name, spec=template.get("spec") or {})
