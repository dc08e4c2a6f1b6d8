"""What the groups of a tree show of its attempts."""

from msgspec.structs import replace

from cpg_api.meta import Condition
from cpg_api.scheduling.attempts import LastAttempt
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler.binding.batch import BindDelayed, BindFailure, PreBindPending
from cpg_scheduler.status.attempts import last_attempt
from cpg_scheduler.testing.gangs import gang
from cpg_scheduler.testing.stage import DENIED, Stage


def shown(stage: Stage, name: str, kind: str = "PodGroup") -> tuple[str, int | None]:
    """Return finding and number of the last attempt that a group shows."""
    found = last_attempt(stage.status.attempts[name], GroupKey(kind, "default", name), "now")
    return found.finding, found.number


def test_attempts_are_numbered_until_the_tree_is_placed() -> None:
    """Then they begin anew, as the tree comes into the queue again."""
    stage = Stage(node("n1", cpu=1), *gang("pg"))
    stage.settle()
    assert shown(stage, "pg") == ("Impossible", 1)
    stage.put(node("n1", cpu=1.5))
    stage.settle(60)
    assert shown(stage, "pg") == ("Impossible", 2)
    stage.put(node("n2", cpu=1))
    stage.settle(60)
    assert shown(stage, "pg") == ("Placed", 3)
    stage.put(pod("late", group="pg", cpu=9))
    stage.settle()
    assert shown(stage, "pg") == ("Placed", 1)


def test_equivalent_trees_count_the_attempt_that_they_share() -> None:
    """It is as if each had been attempted."""
    stage = Stage(node("n1", cpu=1), *gang("one"), *gang("two"))
    stage.settle()
    assert shown(stage, "one") == shown(stage, "two") == ("Impossible", 1)


def test_a_tree_that_cannot_be_attempted_shows_its_problem() -> None:
    """The group that is missing is above those that exist."""
    stage = Stage(node("n1"), pod_group("pg", parent="root"), pod("p", group="pg"))
    stage.settle()
    assert shown(stage, "pg") == ("GroupMissing", 1)
    stage.put(composite("root"))
    stage.settle()
    assert shown(stage, "pg") == ("Placed", 2)
    assert shown(stage, "root", "CompositePodGroup") == ("Placed", 2)


def test_delayed_and_failed_binds_are_findings() -> None:
    """Both belong to the attempt that found the nodes."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    (batch,) = stage.binder.batches
    stage.report(BindDelayed(batch, BindFailure(frozenset(batch.nodes), PreBindPending("volumes", ("claim x",)))))
    assert shown(stage, "pg") == ("PreBindPending", 1)
    stage.fail_binds(DENIED)
    assert shown(stage, "pg") == ("BindRefused", 1)
    stage.settle(60)
    assert shown(stage, "pg") == ("Placed", 2)


def test_an_outdated_attempt_of_a_placed_tree_is_corrected_after_a_start() -> None:
    """The operator may have reported the placement while no scheduler ran."""
    group, *pods = gang("pg")
    condition = Condition(type="PodGroupInitiallyScheduled", status="True", reason="Scheduled")
    status = PodGroupStatus(conditions=(condition,), attempt=LastAttempt("Impossible"))
    bound = [replace(one, spec=replace(one.spec, node_name="n1")) for one in pods]
    stage = Stage(node("n1"), replace(group, status=status), *bound)
    stage.settle()
    assert shown(stage, "pg") == ("Placed", None)
