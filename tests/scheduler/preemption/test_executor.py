"""The executor: in which order a job is prepared and its units are evicted."""

from collections.abc import Sequence

from cpg_api.core.pod import Pod
from cpg_client.errors import ApiError
from cpg_engine.testing.builders import pod
from cpg_scheduler.preemption.jobs import (
    ClearNominations,
    Nominate,
    RetractEvictions,
    Victim,
)
from cpg_scheduler.testing.job_runner import PREEMPTOR, REASON, VICTIM_MESSAGE, JobRunner, marked

FORBIDDEN = ApiError(403, "Forbidden", "no")


async def test_pods_are_nominated_before_the_first_eviction_and_each_victim_is_marked_before_its_deletion() -> None:
    """So a new leader can tell how far a job has come."""
    runner = JobRunner()
    await runner.run()
    sent = runner.sent()
    assert sent[:2] == ["PATCH pods/p0/status", "PATCH podgroups/whole/status"]
    assert sent[2:] == [
        "PATCH pods/v0/status",
        "DELETE pods/v0",
        "PATCH pods/v1/status",
        "DELETE pods/v1",
    ]
    assert [name for name, *_ in runner.events] == ["v0", "v1"]


async def test_all_pods_of_a_unit_are_marked_before_the_first_deletion() -> None:
    """After dry runs of all deletions. So a new leader recognises the unit by the pods that are left."""
    runner = JobRunner()
    runner.unite()
    await runner.run()
    dry_runs, sent = runner.sent()[:2], runner.sent()[4:8]
    assert ([one.body.get("dryRun") for one in runner.api.writes[:2]], dry_runs) == (
        [["All"], ["All"]],
        ["DELETE pods/v0", "DELETE pods/v1"],
    )
    assert sent == ["PATCH pods/v0/status", "PATCH pods/v1/status", "DELETE pods/v0", "DELETE pods/v1"]
    assert not any("dryRun" in one.body for one in runner.api.writes[6:8])


async def test_a_unit_that_is_not_started_is_not_marked() -> None:
    """Its eviction would be in vain: the preemptor was deleted while another unit was evicted."""
    runner = JobRunner()
    runner.pods_to_evict = lambda one: one.pods if one.pods[0].metadata.name == "v0" else None
    await runner.run()
    assert (runner.deleted(), bool(runner.conditions("v1")), runner.refused) == (["v0"], False, [])


async def test_condition_nomination_and_precondition_are_those_of_kube_scheduler() -> None:
    """The condition and the event name the preemptor."""
    runner = JobRunner()
    await runner.run()
    by = {f"{write.method} {'/'.join(write.path.split('/')[-2:])}": write for write in runner.api.writes}
    (condition,) = by["PATCH v0/status"].body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"], condition["message"]) == (
        "DisruptionTarget",
        "True",
        "PreemptionByScheduler",
        VICTIM_MESSAGE,
    )
    assert by["PATCH p0/status"].body["status"] == {"nominatedNodeName": "n1"}
    (shown,) = by["PATCH whole/status"].body["status"]["conditions"]
    assert (shown.type, shown.reason, shown.message) == ("DisruptionTarget", "PreemptionByScheduler", VICTIM_MESSAGE)
    assert by["DELETE pods/v0"].body["preconditions"] == {"uid": "uid-default-v0"}
    name, preemptor, reason, related = runner.events[0]
    assert (name, preemptor, reason) == ("v0", PREEMPTOR, REASON)
    assert related is not None
    assert (related[0].kind, related[1].name, related[1].uid) == ("PodGroup", "train", "uid-train")


async def test_nominations_are_cleared_if_the_plan_is_not_valid_any_more() -> None:
    """No victim is deleted."""
    runner = JobRunner()
    runner.is_valid = False
    await runner.run()
    assert runner.sent()[-1] == "PATCH pods/p0/status"
    assert runner.api.writes[-1].body["status"] == {"nominatedNodeName": None}
    assert not any(write.method == "DELETE" for write in runner.api.writes)


async def test_a_resumed_job_has_no_dry_run_and_marks_no_pod_twice() -> None:
    """A previous leader had begun to evict the unit."""
    runner = JobRunner(is_resumed=True)
    runner.victims = [Victim([marked("v0"), pod("v1", node_name="n1")])]
    await runner.run()
    assert (runner.conditions("v0"), len(runner.conditions("v1")), runner.deleted()) == ([], 1, ["v0", "v1"])
    assert not any("dryRun" in write.body for write in runner.api.writes)


async def test_conditions_of_victims_that_stay_are_retracted() -> None:
    """By an instruction."""
    runner = JobRunner()
    await runner.run(RetractEvictions([pod("v0"), pod("v1")]), job=False)
    assert [runner.conditions(name)[0]["status"] for name in ("v0", "v1")] == ["False", "False"]


async def test_nominations_are_cleared() -> None:
    """By an instruction."""
    runner = JobRunner()
    await runner.run(ClearNominations([pod("p0"), pod("p1")]), job=False)
    assert [write.body["status"] for write in runner.api.writes] == [{"nominatedNodeName": None}] * 2


async def test_a_pod_is_nominated_to_another_node() -> None:
    """By an instruction."""
    runner = JobRunner()
    await runner.run(Nominate(pod("p0"), "n2"), job=False)
    assert [write.body["status"] for write in runner.api.writes] == [{"nominatedNodeName": "n2"}]


async def test_the_duration_of_a_job_is_measured() -> None:
    """By the kind of the preemptor and the result."""
    runner = JobRunner()
    await runner.run()
    page = runner.metrics.page("").body.decode()
    assert 'preemption_execution_duration_seconds_count{preemptor="podgroup",result="success"} 1.0' in page


async def test_status_writes_wait_until_a_job_has_ended() -> None:
    """The gate is closed from its first request to its last, and between two units as well."""
    runner = JobRunner()
    gates: list[bool] = []

    def note(_: object) -> None:
        gates.append(runner.gate.is_open)

    def evict(victim: Victim) -> Sequence[Pod]:
        note(victim)
        return victim.pods

    runner.api.error, runner.pods_to_evict = note, evict
    await runner.run()
    assert (set(gates), len(gates), runner.gate.is_open) == ({False}, 8, True)


async def test_a_retracted_pod_that_is_evicted_after_all_is_marked_again() -> None:
    """After the retraction, though the watch may still show the older condition."""
    runner = JobRunner()
    victim = marked("v0")
    runner.victims = [Victim([victim])]
    await runner.run(RetractEvictions([victim]))
    assert ([one["status"] for one in runner.conditions("v0")], runner.deleted()) == (["False", "True"], ["v0"])


async def test_a_unit_without_running_pods_is_not_marked() -> None:
    """All have ended when it would start."""
    runner = JobRunner()
    runner.unite()
    runner.pods_to_evict = lambda _: ()
    await runner.run()
    assert (runner.deleted(), runner.marks(), runner.refused) == ([], [], [])


async def test_nominations_of_a_prepared_job_can_be_cleared() -> None:
    """The plan breaks when its first unit would start, because that unit has changed."""
    runner = JobRunner()

    def break_plan(_: Victim) -> None:
        runner.outbox.clear_nominations([runner.nominations[0][0]])

    runner.pods_to_evict = break_plan
    await runner.run()
    written = [write.body["status"] for write in runner.api.writes if write.path.endswith("p0/status")]
    assert written[0] == {"nominatedNodeName": "n1"}
    assert written[-1] == {"nominatedNodeName": None}
