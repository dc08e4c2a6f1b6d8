"""What the API server makes of a pod before it stores it: the defaults that scheduling reads."""

from collections.abc import Iterable

from msgspec.structs import replace

from cpg_api.core.pod import Container, Pod, PodSpec, PodStatus, Toleration
from cpg_api.core.priorityclass import PREEMPT_LOWER_PRIORITY, PriorityClass
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.priority import PriorityClasses

DEFAULT_SCHEDULER = "default-scheduler"
SYSTEM_CLASSES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
NOT_READY_SECONDS = 300
NOT_READY_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


class PodRefusedError(Exception):
    """The API server would not create a pod."""


def priority_classes(found: Iterable[PriorityClass]) -> PriorityClasses:
    """Return priority classes, with those that every cluster has."""
    builtin = {
        name: PriorityClass(metadata=ObjectMeta(name=name), value=value) for name, value in SYSTEM_CLASSES.items()
    }
    return PriorityClasses(by_name={**builtin, **{one.metadata.name: one for one in found}})


def admit_pod(pod: Pod, classes: PriorityClasses) -> Pod:
    """Return a pod with its priority and the other defaults; raise if its priority class does not exist."""
    spec = pod.spec
    known = classes.applicable(spec.priority_class_name, None)
    if known is None and spec.priority_class_name:
        raise PodRefusedError(f"no PriorityClass with name {spec.priority_class_name} was found")
    admitted = replace(
        spec,
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        priority=known.value if known is not None else 0,
        priority_class_name=known.metadata.name if known is not None else "",
        preemption_policy=spec.preemption_policy or (known.preempts if known else PREEMPT_LOWER_PRIORITY),
        tolerations=_tolerations(spec),
        containers=spec.containers and tuple(_with_defaults(one, spec) for one in spec.containers),
        init_containers=spec.init_containers and tuple(_with_defaults(one, spec) for one in spec.init_containers),
    )
    return replace(pod, spec=admitted, status=PodStatus(phase="Pending"))


def _tolerations(spec: PodSpec) -> tuple[Toleration, ...]:
    """Return the tolerations of a pod; each tolerates nodes that are not ready for some minutes."""
    given = spec.tolerations or ()
    tolerated = {one.key for one in given if one.effect in {"", "NoExecute"}}
    added = (
        Toleration(key=key, operator="Exists", effect="NoExecute", toleration_seconds=NOT_READY_SECONDS)
        for key in NOT_READY_TAINTS
        if tolerated.isdisjoint({key, ""})
    )
    return (*given, *added)


def _with_defaults(container: Container, spec: PodSpec) -> Container:
    """Return a container with its limits as requests, and with the ports of the node in the network of the node."""
    limits, requests = container.resources.limits, container.resources.requests
    resources = replace(container.resources, requests={**(limits or {}), **(requests or {})} or None)
    ports = container.ports
    if spec.host_network and ports:
        ports = tuple(replace(one, host_port=one.host_port or one.container_port) for one in ports)
    return replace(container, resources=resources, ports=ports)
