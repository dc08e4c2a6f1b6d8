"""JobSets, with their real controller: where their pods are bound, and which groups there are."""

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.workloads.conftest import Space

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]

Plain = dict[str, Any]
BLOCK, RACK = "topology.cpg.dev/block", "topology.cpg.dev/rack"
JOB, INDEX, ATTEMPT = "replicatedjob-name", "job-index", "restart-attempt"


def job(space: "Space", name: str, replicas: int, size: int, *, after: tuple[str, str] | None = None) -> Plain:
    """Return a replicated job, which may start after another one."""
    spec: Plain = {"parallelism": size, "completions": size, "backoffLimit": 0}
    made: Plain = {"name": name, "replicas": replicas, "template": {"spec": spec}}
    spec["template"] = space.worker(restartPolicy="Never")
    if after is not None:
        made["dependsOn"] = [{"name": after[0], "status": after[1]}]
    return made


def condition(space: "Space", name: str, kind: str) -> str:
    """Return the status of a condition of a JobSet."""
    conditions = space.read("JobSet", name).get("status", {}).get("conditions", ())
    return next((str(each["status"]) for each in conditions if each["type"] == kind), "")


def test_jobs_of_one_index_are_a_replica_in_one_rack(space: "Space") -> None:
    """All replicas are in one block, and their groups end with the JobSet."""
    jobs = [job(space, "workers", 2, 4), job(space, "driver", 2, 1)]
    space.create(
        "JobSet",
        "train",
        {"replicatedJobs": jobs},
        required_topology=BLOCK,
        replica_required_topology=RACK,
        replica_by="job-index",
    )
    pods = space.running(10)
    racks = space.racks(pods, INDEX)
    assert {len(one) for one in racks.values()} == {1}
    assert len({rack[0] for one in racks.values() for rack in one}) == 1
    assert space.leaves() == {
        f"jobset.train.{name}.{i}": size for name, size in (("workers", 4), ("driver", 1)) for i in range(2)
    }
    assert space.composites() == {"jobset.train.root": 2, "jobset.train.replica.0": 2, "jobset.train.replica.1": 2}


def test_without_room_for_all_no_pod_is_bound(space: "Space") -> None:
    """A second JobSet waits as a whole, until the first one is deleted."""
    space.create("JobSet", "first", {"replicatedJobs": [job(space, "w", 2, 10)]})
    space.running(20)
    space.create("JobSet", "second", {"replicatedJobs": [job(space, "w", 2, 3)]})
    space.waiting(6, jobset_name="second")
    space.delete("JobSet", "first")
    space.running(6)


@pytest.mark.parametrize("order", ["InOrder", "Ready", "Complete"])
def test_jobs_that_start_later_are_no_part_of_the_minimum(space: "Space", order: str) -> None:
    """They are created once the first one is ready, or complete, and then they are placed as a gang each."""
    after = None if order == "InOrder" else ("driver", order)
    jobs = [job(space, "driver", 1, 1), job(space, "workers", 2, 3, after=after)]
    policy = {} if after else {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    space.create("JobSet", "train", {"replicatedJobs": jobs, **policy}, replica_required_topology=RACK)
    if order == "Complete":
        space.end("Succeeded", *space.running(1, replicatedjob_name="driver"))
    pods = space.running(6, replicatedjob_name="workers")
    assert {len(one) for one in space.racks(pods, INDEX).values()} == {1}
    assert space.leaves() == {"jobset.train.driver.0": 1, "jobset.train.workers.0": 3, "jobset.train.workers.1": 3}
    minimums = {"root": 1, "driver-jobs": 1, "workers-jobs": 2}
    assert space.composites() == {f"jobset.train.{name}": size for name, size in minimums.items()}


def test_a_suspended_jobset_comes_back_as_a_whole(space: "Space") -> None:
    """It has no groups before it runs. While its room is taken, it waits; then it gets the same groups."""
    space.create("JobSet", "train", {"suspend": True, "replicatedJobs": [job(space, "w", 2, 3)]})
    space.wait(lambda: len(space.items("Job")) == 2, "the Jobs")
    assert (space.pods(), space.leaves(), space.composites()) == ([], {}, {})
    space.change("JobSet", "train", suspend=False)
    space.running(6)
    groups = space.uids()
    space.change("JobSet", "train", suspend=True)
    space.wait(lambda: not space.pods(), "the end of the pods")
    space.create("JobSet", "other", {"replicatedJobs": [job(space, "w", 1, 20)]})
    space.running(20)
    space.change("JobSet", "train", suspend=False)
    space.waiting(6, jobset_name="train")
    space.delete("JobSet", "other")
    space.running(6)
    assert space.uids() >= groups


def test_a_restart_forms_the_same_groups_again(space: "Space") -> None:
    """One pod fails, and the JobSet creates all Jobs again under the same names."""
    spec = {"replicatedJobs": [job(space, "w", 2, 3)], "failurePolicy": {"maxRestarts": 2}}
    space.create("JobSet", "train", spec, replica_required_topology=RACK)
    pods, groups = space.running(6), space.uids()
    space.end("Failed", pods[0])
    again = space.running(6, restart_attempt="1")
    assert {len(one) for one in space.racks(again, INDEX).values()} == {1}
    assert space.counts(again, JOB, INDEX) == {"w 0": 3, "w 1": 3}
    assert space.uids() == groups


def test_a_job_that_restarts_alone_forms_its_group_again(space: "Space") -> None:
    """The failure policy may restart one Job: the pods of the other one stay."""
    rule = {"name": "one", "action": "RestartJob"}
    spec = {"replicatedJobs": [job(space, "w", 2, 3)], "failurePolicy": {"maxRestarts": 2, "rules": [rule]}}
    space.create("JobSet", "train", spec, replica_required_topology=RACK)
    pods, groups = space.running(6), space.uids()
    space.end("Failed", pods[0])
    failed = {pod["metadata"]["uid"] for pod in pods[:3]}
    space.wait(lambda: not failed & {pod["metadata"]["uid"] for pod in space.pods()}, "the end of the failed Job")
    again = space.running(6)
    assert {pod["metadata"]["uid"] for pod in again} > {pod["metadata"]["uid"] for pod in pods[3:]}
    assert {len(one) for one in space.racks(again, INDEX).values()} == {1}
    assert space.uids() == groups


@pytest.mark.parametrize(("phase", "end"), [("Failed", "Failed"), ("Succeeded", "Completed")])
def test_no_pod_of_an_ended_jobset_waits(space: "Space", phase: str, end: str) -> None:
    """By its failure policy or its success policy it ends with one pod, and its room is free."""
    rule = {"name": "all", "action": "FailJobSet"}
    spec = {
        "replicatedJobs": [job(space, "driver", 1, 1), job(space, "w", 2, 8)],
        "failurePolicy": {"maxRestarts": 2, "rules": [rule]},
        "successPolicy": {"operator": "Any", "targetReplicatedJobs": ["driver"]},
    }
    space.create("JobSet", "train", spec)
    space.running(17)
    space.create("JobSet", "next", {"replicatedJobs": [job(space, "w", 1, 17)]})
    space.waiting(17, jobset_name="next")
    space.end(phase, *space.pods(replicatedjob_name="driver"))
    space.running(17)
    assert (condition(space, "train", end), space.pods(jobset_name="train")) == ("True", [])


def test_the_size_of_jobs_can_change(space: "Space") -> None:
    """Indexed Jobs of an elastic JobSet get more pods, or fewer; their gang follows."""
    spec = {"replicatedJobs": [job(space, "w", 2, 3)]}
    space.create("JobSet", "train", spec)
    space.running(6)
    for size in (5, 2):
        jobs = space.read("JobSet", "train")["spec"]["replicatedJobs"]
        jobs[0]["template"]["spec"] |= {"parallelism": size, "completions": size}
        space.change("JobSet", "train", replicatedJobs=jobs)
        space.running(2 * size)
        minimums = {f"jobset.train.w.{number}": size for number in range(2)}
        space.wait(partial(space.has_leaves, minimums), f"a minimum of {size}")
