"""Expected decisions, compared with nodes and conditions."""

from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.reported_decisions import unmet_decisions, unmet_domains
from cpg_engine.testing.scenario_expectations import Expected
from cpg_engine.testing.simulator import ClusterSimulator


def simulator(*running_on: str) -> ClusterSimulator:
    """Return two racks of one node, and a group with a pod on each of these nodes."""
    found = ClusterSimulator(SearchOptions())
    for name in "ab":
        found.put_node(node(name, labels={"rack": name}))
    found.put_group(pod_group("pg"))
    for number, name in enumerate(running_on):
        found.put_pod(pod(f"p{number}", group="pg", node_name=name))
    return found


def test_the_pods_of_a_group_are_in_its_domain() -> None:
    """All of them, and there is at least one."""
    expected = Expected(domain={"pg": "rack=a"})
    assert list(unmet_domains(expected, simulator("a"))) == []
    for others in ((), ("a", "b")):
        assert len(list(unmet_domains(expected, simulator(*others)))) == 1


def test_conditions_agree_with_findings_and_statuses() -> None:
    """A placed root is scheduled; a failed one and a failed group are not; the success of a group says nothing."""
    found = simulator()
    for reported, finding, status, problems in (
        ("True Scheduled", "Placed", "Success S=1", 0),
        ("False Unschedulable", "Impossible", "Unschedulable M=1", 0),
        ("False Unschedulable", "Placed", "Success", 1),
        ("True Scheduled", "Impossible", "UnschedulableAndUnresolvable", 2),
    ):
        found.reported = {"pg": reported}
        expected = Expected(finding={"pg": finding}, status={"pg": status})
        assert len(list(unmet_decisions(expected, found))) == problems, reported
    found.reported = None
    assert len(list(unmet_decisions(Expected(finding={"pg": "Impossible"}), found))) == 1
