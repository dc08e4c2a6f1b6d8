"""Names that users rely on."""

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

from cpg_api.scheduling import names
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

CONTRACT = {
    "GROUP": "scheduling.cpg.dev",
    "VERSION": "v1alpha3",
    "API_VERSION": "scheduling.cpg.dev/v1alpha3",
    "NATIVE_GROUP": "scheduling.k8s.io",
    "POD_GROUP_LABEL": "scheduling.cpg.dev/pod-group",
    "FINALIZER": "scheduling.cpg.dev/group-protection",
    "INSTANTIATE": "scheduling.cpg.dev/instantiate",
    "INSTANTIATED": "scheduling.cpg.dev/instantiated",
    "DERIVED_FROM": "scheduling.cpg.dev/derived-from",
    "REPLICAS": "scheduling.cpg.dev/replicas",
    "TEMPLATE_HASH": "scheduling.cpg.dev/template-hash",
    "EXPECTED_PODS": "scheduling.cpg.dev/expected-pods",
    "ADOPT": "scheduling.cpg.dev/adopt",
    "GANG": "scheduling.cpg.dev/gang",
    "SCHEDULER_NAME": "cpg-scheduler",
    "POD_SCHEDULED": "PodScheduled",
    "POD_GROUP_INITIALLY_SCHEDULED": "PodGroupInitiallyScheduled",
    "COMPOSITE_POD_GROUP_INITIALLY_SCHEDULED": "CompositePodGroupInitiallyScheduled",
    "DISRUPTION_TARGET": "DisruptionTarget",
    "REASON_SCHEDULED": "Scheduled",
    "REASON_UNSCHEDULABLE": "Unschedulable",
    "REASON_WAITING_FOR_GROUP": "WaitingForGroup",
    "REASON_PLACEMENT_NOT_FOUND": "PlacementNotFound",
    "REASON_SCHEDULER_ERROR": "SchedulerError",
    "REASON_INVALID": "Invalid",
    "REASON_PENDING": "Pending",
    "REASON_PREEMPTION": "PreemptionByScheduler",
    "REASON_RESCHEDULED": "Rescheduled",
    "EVENT_SCHEDULED": "Scheduled",
    "EVENT_FAILED_SCHEDULING": "FailedScheduling",
    "EVENT_PREEMPTED": "Preempted",
    "EVENT_OVER_COMMITTED": "OverCommitted",
    "EVENT_VALID": "Valid",
    "EVENT_RELEASED": "Released",
    "EVENT_INCOMPLETE": "Incomplete",
    "EVENT_NOT_ADOPTED": "TreeNotMade",
    "EVENT_TREE_REPLACED": "TreeReplaced",
    "EVENT_TREE_REMOVED": "TreeRemoved",
    "MAX_DEPTH": 4,
    "MAX_TEMPLATES": 8,
    "MAX_REPLICAS": 1000,
}
"""The names of the design, repeated here, so that a change of one is deliberate."""

EXECUTABLES = {"cpg-operator", "cpg-scheduler", "kubectl-cpg", "kubectl_complete-cpg", "cpg-lab"}


def test_names_are_those_of_the_contract() -> None:
    """Manifests, labels of running pods and other controllers contain them, so none may change or be missing."""
    assert {name: value for name, value in vars(names).items() if name.isupper()} == CONTRACT


def test_kinds_are_those_of_the_contract() -> None:
    """The same in both flavours."""
    assert [found.kind for found in (Workload, PodGroup, CompositePodGroup)] == [
        "Workload",
        "PodGroup",
        "CompositePodGroup",
    ]


def test_executables_are_those_of_the_contract() -> None:
    """Each is callable, and no other is installed."""
    scripts: dict[str, str] = PROJECT["scripts"]
    assert scripts.keys() <= EXECUTABLES
    points = [EntryPoint(name=name, value=value, group="console_scripts") for name, value in scripts.items()]
    assert [point.name for point in points if not callable(point.load())] == []


def test_the_distribution_is_the_one_that_users_install() -> None:
    """Its name, and the oldest supported Python."""
    assert (PROJECT["name"], PROJECT["requires-python"]) == ("kube-cpg", ">=3.11")
