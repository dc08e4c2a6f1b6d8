"""The order of events does not matter: pods may come before their groups, and the operator may be down."""

from typing import TYPE_CHECKING, Any

import pytest

from cpg_api.scheduling.names import REASON_WAITING_FOR_GROUP

if TYPE_CHECKING:
    from tests.e2e.workloads.conftest import Part, Space

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]

Plain = dict[str, Any]


def create(space: "Space", name: str) -> None:
    """Create a JobSet of two Jobs of three pods, which may restart."""
    job: Plain = {"parallelism": 3, "completions": 3, "backoffLimit": 0}
    job["template"] = space.worker(restartPolicy="Never")
    jobs = [{"name": "w", "replicas": 2, "template": {"spec": job}}]
    space.create("JobSet", name, {"replicatedJobs": jobs, "failurePolicy": {"maxRestarts": 2}})


def test_while_the_operator_is_down_known_groups_are_placed(space: "Space", processes: "dict[str, Part]") -> None:
    """Pods of unknown groups wait and say for which one, until the operator is back."""
    create(space, "known")
    pods, groups = space.running(6), space.uids()
    processes["operator"].stop()
    try:
        create(space, "new")
        space.end("Failed", pods[0])
        space.running(6, jobset_name="known", restart_attempt="1")
        waiting = space.waiting(6, REASON_WAITING_FOR_GROUP, jobset_name="new")
        messages = {each["message"] for pod in waiting for each in pod["status"]["conditions"] if "message" in each}
        assert {name for name in ("w.0", "w.1") for text in messages if f"jobset.new.{name}" in text} == {"w.0", "w.1"}
        assert space.uids() == groups
    finally:
        processes["operator"].start()
    space.running(12)


def test_pods_created_while_the_scheduler_is_down_are_placed_as_a_gang(
    space: "Space", processes: "dict[str, Part]"
) -> None:
    """Their groups are there before it starts."""
    processes["scheduler"].stop()
    try:
        create(space, "train")
        space.wait(lambda: len(space.pods()) == 6 and len(space.leaves()) == 2, "pods and groups")
        assert not any("nodeName" in pod["spec"] for pod in space.pods())
    finally:
        processes["scheduler"].start()
    space.running(6)
