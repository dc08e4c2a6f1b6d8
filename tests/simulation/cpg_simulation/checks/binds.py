"""Where pods may be bound: once, ours alone, and only to nodes that take them and have room for them."""

from collections import Counter
from collections.abc import Iterator

from cpg_api.core.node import Node, Taint
from cpg_api.selectors import LabelMatcher, NodeMatcher
from cpg_api.tolerations import first_untolerated_taint
from cpg_simulation.checks.changes import Change
from cpg_simulation.checks.cluster import TrackedPod
from cpg_simulation.checks.quantities import amounts
from cpg_simulation.checks.values import Expectation, Finding, Rule

CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
Findings = Iterator[Finding | Expectation]


def _bound_once(change: Change) -> Findings:
    """Yield that a pod that had a node has another one."""
    write, pod = change.write, change.pod
    if pod is None or write.old is None or write.new is None:
        return
    before, now = write.old["spec"].get("nodeName"), write.new["spec"].get("nodeName")
    if before and before != now:
        yield Finding((str(pod),), f"{pod} was on node {before} and is on node {now or 'none'} now")


def _only_own_pods(change: Change) -> Findings:
    """Yield why the scheduler must not have bound a pod."""
    pod = change.bound
    if pod is None:
        return
    if not change.cluster.is_ours(pod):
        yield Finding((str(pod),), f"{pod} is bound, and names scheduler {pod.pod.spec.scheduler_name!r}")
    if pod.pod.spec.scheduling_gates:
        yield Finding((str(pod),), f"{pod} is bound, and has scheduling gates")
    if pod.has_ended or pod.is_deleting:
        yield Finding((str(pod),), f"{pod} is bound, and has ended or is being deleted")


def _room(change: Change) -> Findings:
    """Yield of what a node has too little for a pod that was bound to it."""
    pod = change.bound
    if pod is None:
        return
    known = [other for other in change.cluster.on_node[pod.node].values() if counts(change, other)]
    used = sum((other.requests_in(change.view) for other in known), Counter[str]())
    asked = [name for name, number in pod.requests.items() if number]
    states = [
        amounts(node.status.allocatable)
        for node in change.cluster.node_versions(pod.node, change.view.revisions.get("nodes", change.write.revision))
        if node is not None
    ]
    if any(all(used[name] <= free[name] for name in asked) for free in states):
        return
    last = states[-1] if states else Counter[str]()
    short = ", ".join(f"{used[name]} of {last[name]} {name}" for name in asked if used[name] > last[name])
    problem = f"its {len(known)} pods request {short}" if states else "the node is gone"
    yield Finding((str(pod), f"Node {pod.node}"), f"{pod} is bound to node {pod.node}: {problem}")


def counts(change: Change, other: TrackedPod) -> bool:
    """Return whether a bind has to count a pod that takes room: it is the scheduler's own, or was shown to it."""
    is_own = other is change.pod or other.bound_by == change.process
    return other.takes_room and (is_own or change.view.sees("pods", other.bound_at))


def _takes_the_pod(change: Change) -> Findings:
    """Yield why a node does not take a pod that was bound to it."""
    pod = change.bound
    if pod is None:
        return
    seen = change.view.revisions.get("nodes", change.write.revision)
    states = [node for node in change.cluster.node_versions(pod.node, seen) if node is not None]
    problems = [objection(pod, node) for node in states]
    if problems and all(problems):
        yield Finding((str(pod), f"Node {pod.node}"), f"{pod} is bound to node {pod.node}, which {problems[-1]}")


def objection(pod: TrackedPod, node: Node) -> str:
    """Return why a node does not take a pod, apart from room."""
    spec = pod.pod.spec
    taints = (*(node.spec.taints or ()), *([CORDON] if node.spec.unschedulable else []))
    taint = first_untolerated_taint(taints, spec.tolerations)
    if taint is not None:
        return f"has the taint {taint.key}"
    return "" if is_selected(pod, node) else "its node selector or node affinity rules out"


def is_selected(pod: TrackedPod, node: Node) -> bool:
    """Return whether the node selector and the node affinity of a pod allow a node."""
    spec, labels = pod.pod.spec, node.metadata.labels
    affinity = spec.affinity.node_affinity if spec.affinity else None
    terms = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    if not LabelMatcher.exact(spec.node_selector).matches(labels):
        return False
    return terms is None or NodeMatcher.compile(terms).matches(labels, node.metadata.name)


BOUND_ONCE = Rule(
    name="A pod is bound once",
    promise="A pod that has a node never gets another one.",
    check=_bound_once,
)
ONLY_OWN_PODS = Rule(
    name="Only own pods are bound",
    promise="The scheduler binds a pod only if it names it, has no gates, has not ended and is not being deleted.",
    check=_only_own_pods,
)
ROOM = Rule(
    name="No node is over-committed",
    promise="A bind fits beside the pods that its scheduler had bound there itself or was shown before it decided.",
    check=_room,
)
TAKES_THE_POD = Rule(
    name="Nodes take the pods that they get",
    promise="A bind obeys node selector, node affinity, taints and cordons, as its scheduler was shown the node.",
    check=_takes_the_pod,
)
