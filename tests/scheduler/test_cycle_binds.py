"""The outcomes of binds, and what the loop does about them."""

import pytest
from msgspec.structs import replace

from cpg_engine.decisions import VolumeAllocation
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_engine.testing.storage_builders import claim, storage_class, using, volume
from cpg_scheduler.binding.batch import BindDelayed, BindFailed, BindFailure, BindInDoubt, BindSucceeded, PreBindPending
from cpg_scheduler.testing.gangs import gang, logged_attempts
from cpg_scheduler.testing.stage import DENIED, Stage

REFUSAL = "Pod default/p cannot be bound to node n1: denied"
REFUSED = (False, "SchedulerError", REFUSAL)
PLACED = (True, "", "")


def test_a_unit_whose_binds_always_fail_backs_off() -> None:
    """A webhook that rejects its pods must not keep the scheduler busy."""
    stage = Stage(node("n1"), *gang("pg"))
    for _ in range(100):
        stage.now += 1.0
        stage.run_passes()
        stage.fail_binds()
    assert 5 < len(logged_attempts(stage)) < 15
    assert stage.bound() == {}
    stage.settle(60)
    assert len(stage.bound()) == 2


def test_a_partly_bound_tree_is_completed_in_its_domain() -> None:
    """The rest is placed beside the bound members."""
    stage = Stage(*(node(f"{rack}{number}", cpu=1, labels={"rack": rack}) for rack in "ab" for number in range(2)))
    stage.put(pod_group("pg", gang=2, key="rack"), *(pod(f"p{number}", cpu=1, group="pg") for number in range(2)))
    stage.run_passes()
    batch = stage.binder.batches.pop()
    (works, where), (fails, _) = batch.nodes.items()
    bound = stage.pod(batch.pods[works].metadata.name)
    stage.put(replace(bound, spec=replace(bound.spec, node_name=where)))
    stage.cache.forget(fails)
    stage.end_batch(batch, BindFailed(batch, BindFailure(frozenset({fails}))))
    stage.settle(60)
    assert {name[0] for name in stage.bound().values()} == {where[0]}
    assert stage.status.groups["pg"][0]


def test_a_bind_is_in_flight_until_its_batch_ends() -> None:
    """Until then the condition of a delayed pod may be written, and no longer."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    uid = stage.pod("pg-0").metadata.uid
    assert uid in stage.cache.binds_in_flight
    stage.fail_binds()
    assert uid not in stage.cache.binds_in_flight


def test_a_gang_with_its_minimum_is_scheduled_though_another_bind_is_refused() -> None:
    """Each time: an admission policy may reject that one pod for ever."""
    stage = Stage(node("n1"), *gang("pg", size=3))
    for _ in range(3):
        stage.now += 60
        stage.run_passes()
        stage.complete_binds(refused={"pg-2"})
        assert stage.status.groups == {"pg": PLACED}
    assert stage.status.pods == {"pg-2": REFUSED[1:]}


@pytest.mark.parametrize(("minimum", "root"), [(1, PLACED), (2, REFUSED)])
def test_groups_without_their_minimum_report_the_refused_bind(minimum: int, root: tuple[bool, str, str]) -> None:
    """Groups with their minimum are scheduled, and a group that was left out keeps its own message."""
    stage = Stage(node("n1"), composite("root", gang=minimum))
    for name, cpu in (("one", 1), ("two", 1), ("big", 99)):
        stage.put(pod_group(name, gang=2, parent="root"))
        stage.put(*(pod(f"{name}-{number}", group=name, cpu=cpu) for number in range(2)))
    stage.run_passes()
    big = stage.status.groups["big"]
    stage.complete_binds(refused={"two-1"})
    assert stage.status.groups == {"root": root, "one": PLACED, "two": REFUSED, "big": big}
    assert "room for 0 of 2 pods" in big[2]
    stage.settle(60)
    assert stage.status.groups == {"root": PLACED, "one": PLACED, "two": PLACED, "big": big}


def test_binds_in_flight_do_not_count_towards_the_minimum() -> None:
    """A member that came later is bound first, and the binds of the others are refused."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    first = stage.binder.batches.pop()
    stage.put(pod("late", group="pg", cpu=1))
    stage.run_passes()
    stage.complete_binds()
    assert (stage.bound(), stage.status.groups) == ({"late": "n1"}, {})
    stage.binder.batches.append(first)
    stage.complete_binds(refused={"pg-0", "pg-1"})
    assert stage.status.groups == {"pg": REFUSED}
    stage.settle(60)
    assert stage.status.groups == {"pg": PLACED}


def test_a_pod_that_is_deleted_during_its_bind_is_forgotten() -> None:
    """In the queue and on the node."""
    stage = Stage(node("n1", cpu=1), pod("p", cpu=1))
    stage.run_passes()
    stage.delete(stage.pod("p"))
    stage.fail_binds()
    stage.settle(60)
    assert len(stage.queue) == 0
    stage.put(pod("q", cpu=1))
    stage.settle()
    assert stage.bound() == {"q": "n1"}


@pytest.mark.parametrize("is_first", [True, False], ids=["deleted-before-the-delay", "deleted-after-it"])
def test_a_gang_that_loses_members_during_its_binds_says_so_when_they_end(*, is_first: bool) -> None:
    """Its other pods are bound; the watch may show their nodes before the batch ends, or after it."""
    lacks = (False, "WaitingForGroup", "waiting for 1 more pod: minCount is 2, there is 1")
    for confirm in (Stage.complete_binds, _end_unconfirmed):
        stage = Stage(node("n1"), *gang("pg"))
        stage.run_passes()
        (batch,) = stage.binder.batches
        in_doubt = BindFailure(frozenset({"uid-default-pg-0"}), BindInDoubt("n1", "no answer"))
        if not is_first:
            stage.report(BindDelayed(batch, in_doubt))
        stage.delete(stage.pod("pg-1"))
        stage.run_passes()
        if is_first:
            stage.report(BindDelayed(batch, in_doubt))
        confirm(stage)
        stage.run_passes()
        assert stage.status.groups == {"pg": lacks}


def _end_unconfirmed(stage: Stage) -> None:
    """Let all binds in flight work, before the watch shows their nodes."""
    batches, stage.binder.batches = stage.binder.batches, []
    for batch in batches:
        stage.end_batch(batch, BindSucceeded(batch))


def test_a_delay_is_no_news_for_a_gang_that_has_lost_members() -> None:
    """Its attempt has said what it lacks meanwhile, since other pods of the tree are pending."""
    stage = Stage(node("n1", cpu=4), composite("root", gang=1))
    for name, cpu in (("a", 1), ("b", 9)):
        stage.put(pod_group(name, gang=2, parent="root"))
        stage.put(*(pod(f"{name}-{number}", group=name, cpu=cpu) for number in range(2)))
    stage.run_passes()
    (batch,) = stage.binder.batches
    stage.delete(stage.pod("a-1"))
    stage.run_passes()
    lacks = stage.status.groups["a"]
    stage.report(BindDelayed(batch, BindFailure(frozenset({"uid-default-a-0"}), BindInDoubt("n1", "no answer"))))
    assert (lacks[1], stage.status.groups["a"]) == ("WaitingForGroup", lacks)


def test_a_member_that_arrives_during_the_binds_of_its_gang_is_placed() -> None:
    """The end of the binds does not remove the unit from the queue."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    stage.put(pod("late", group="pg", cpu=1))
    stage.loop._requeuer.take_events(stage.now)
    stage.complete_binds()
    stage.settle()
    assert sorted(stage.bound()) == ["late", "pg-0", "pg-1"]


def test_a_pod_is_placed_when_its_missing_claim_is_created() -> None:
    """Without a backoff; the batch carries the allocation."""
    stage = Stage(node("n1"), storage_class(), volume("pv"), pod("p", volumes=using("x")))
    stage.settle()
    reason, message = stage.status.pods["p"]
    assert (reason, 'persistentvolumeclaim "x" not found' in message) == ("WaitingForVolumes", True)
    stage.put(claim("x"))
    stage.run_passes()
    (batch,) = stage.binder.batches
    allocation = VolumeAllocation("default/x", "pv", "n1")
    assert batch.allocations == {"uid-default-p": (allocation,)}
    assert stage.cache.snapshot.ledger.volume_allocator.allocated == {"default/x": allocation}


def test_the_conditions_of_delayed_and_failed_binds() -> None:
    """Pods and groups have the reason of the delay."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    (batch,) = stage.binder.batches
    pending = PreBindPending("volumes", ("claim x",))
    stage.report(BindDelayed(batch, BindFailure(frozenset(batch.nodes), pending)))
    message = "waiting for claim x to be bound"
    assert stage.status.pods == dict.fromkeys(("pg-0", "pg-1"), ("WaitingForVolumes", message))
    assert stage.status.groups == {"pg": (False, "WaitingForVolumes", message)}
    stage.fail_binds(DENIED)
    assert stage.status.pods["pg-0"] == REFUSED[1:]
    assert stage.status.groups == {"pg": REFUSED}


def test_an_outdated_batch_is_attempted_again_at_once() -> None:
    """Without a backoff and without a condition."""
    stage = Stage(node("n1"), *gang("pg"))
    stage.run_passes()
    stage.put(node("n1", unschedulable=True), node("n2"))
    stage.fail_binds(is_outdated=True)
    assert stage.status.pods == {}
    stage.settle()
    assert stage.bound() == {"pg-0": "n2", "pg-1": "n2"}
