"""What follows from an expected decision for nodes and conditions, which users see, compared on an API server."""

from collections.abc import Iterator

from cpg_engine.testing.scenario_expectations import Expected, pods_of
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_engine.verdicts import Finding, Status

SCHEDULED = "True"
FAILED = {Status.UNSCHEDULABLE, Status.UNRESOLVABLE, Status.WAIT}


def unmet_domains(expected: Expected, simulator: ClusterSimulator) -> Iterator[str]:
    """Yield each group without pods on nodes, or with pods outside of its expected domain."""
    for name, domain in expected.domain.items():
        key, _, value = domain.partition("=")
        nodes = {pod.spec.node_name for pod in pods_of(simulator, name)} & simulator.nodes.keys()
        outside = sorted(node for node in nodes if simulator.nodes[node].metadata.labels.get(key) != value)
        if outside or not nodes:
            yield f"domain: {name}: expected {domain}, found pods on {outside}"


def unmet_decisions(expected: Expected, simulator: ClusterSimulator) -> Iterator[str]:
    """Yield each group or pod whose condition contradicts the expected finding or status.

    A placed root is scheduled; another root, and a group that has failed, is not. A group that would fit can be lost
    through its root, so its own success says nothing. Members that contradict their tree may have been its minimum.
    """
    reported = simulator.reported or {}
    scheduled = {name: text.split(" ")[0] == SCHEDULED for name, text in reported.items()}
    for name, finding in expected.finding.items():
        if finding != Finding.CONTRADICTION and scheduled.get(name) is not (finding == Finding.PLACED):
            yield f"finding: {name}: expected {finding}, found {reported.get(name)!r}"
    for name, status in expected.status.items():
        if scheduled.get(name) and FAILED.intersection(status.split()):
            yield f"status: {name}: expected {status}, found {reported.get(name)!r}"
