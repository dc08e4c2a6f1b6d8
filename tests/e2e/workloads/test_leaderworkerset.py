"""LeaderWorkerSets, with their real controller: where their pods are bound, and which groups there are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.workloads.conftest import Space

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]

Plain = dict[str, Any]
RACK = "topology.cpg.dev/rack"
GROUP, WORKER, REVISION = "group-index", "worker-index", "template-revision-hash"


def replicas(space: "Space", number: int, size: int, **template: object) -> Plain:
    """Return the spec of a LeaderWorkerSet."""
    return {"replicas": number, "leaderWorkerTemplate": {"size": size, "workerTemplate": space.worker(), **template}}


def names(minimums: Mapping[str, int], *parts: str) -> dict[str, int]:
    """Return which of these groups of ``serve`` there should be."""
    return {f"lws.serve.{part}": minimums[part.split(".")[0]] for part in parts}


def bound(space: "Space") -> Mapping[str, int]:
    """Return how many pods of each replica have a node."""
    return space.counts([pod for pod in space.pods() if "nodeName" in pod["spec"]], GROUP)


def test_each_replica_is_a_gang_in_one_rack(space: "Space") -> None:
    """Replicas come and go with their groups. One that does not fit waits as a whole, and the others run."""
    space.create("LeaderWorkerSet", "serve", replicas(space, 2, 4), replica_required_topology=RACK)
    assert {len(one) for one in space.racks(space.running(8), GROUP).values()} == {1}
    assert space.leaves() == {"lws.serve.replica.0": 4, "lws.serve.replica.1": 4}
    assert space.composites() == {"lws.serve.root": 0}
    space.change("LeaderWorkerSet", "serve", replicas=5)
    space.wait(lambda: [*bound(space).values()] == [4] * 4, "four replicas")
    (last,) = {str(number) for number in range(5)} - bound(space).keys()
    space.waiting(4, group_index=last)
    space.change("LeaderWorkerSet", "serve", replicas=1)
    space.running(4)
    space.wait(lambda: set(space.leaves()) == {"lws.serve.replica.0"}, "one group")


@pytest.mark.parametrize("surge", [0, 1])
def test_a_rolling_update_replaces_whole_replicas(space: "Space", surge: int) -> None:
    """Those that an update adds for a time have groups too."""
    rolling = {"rollingUpdateConfiguration": {"maxSurge": surge, "maxUnavailable": 1 - surge}}
    spec = {**replicas(space, 2, 4), "rolloutStrategy": {"type": "RollingUpdate", **rolling}}
    space.create("LeaderWorkerSet", "serve", spec, replica_required_topology=RACK)
    old = space.counts(space.running(8), REVISION)
    groups = space.uids()
    assert set(space.leaves()) == {f"lws.serve.replica.{number}" for number in range(2 + surge)}
    changed = space.read("LeaderWorkerSet", "serve")["spec"]["leaderWorkerTemplate"]
    changed["workerTemplate"]["spec"]["containers"][0]["image"] = "new"
    space.change("LeaderWorkerSet", "serve", leaderWorkerTemplate=changed)
    space.wait(lambda: not old.keys() & space.counts(space.pods(), REVISION).keys(), "the new revision")
    new = space.running(8)
    assert space.counts(new, GROUP) == {"0": 4, "1": 4}
    assert {len(one) for one in space.racks(new, GROUP).values()} == {1}
    assert space.uids() == groups


def test_workers_that_wait_for_their_leader_are_no_part_of_the_minimum(space: "Space") -> None:
    """They are created once the leader is ready, and join it in its rack."""
    spec = {**replicas(space, 2, 3), "startupPolicy": "LeaderReady"}
    space.create("LeaderWorkerSet", "serve", spec, replica_required_topology=RACK)
    assert {len(one) for one in space.racks(space.running(6), GROUP).values()} == {1}
    assert space.leaves() == {"lws.serve.replica.0": 1, "lws.serve.replica.1": 1}


def test_a_replica_that_restarts_forms_its_group_again(space: "Space") -> None:
    """A container restarts, and the controller creates the pods of its replica again."""
    space.create("LeaderWorkerSet", "serve", replicas(space, 2, 4), replica_required_topology=RACK)
    pods, groups = space.running(8), space.uids()
    space.count_restart(pods[5])
    restarted = {pod["metadata"]["uid"] for pod in pods[4:]}
    space.wait(lambda: not restarted & {pod["metadata"]["uid"] for pod in space.pods()}, "the end of the replica")
    again = space.running(8)
    assert {pod["metadata"]["uid"] for pod in again} > {pod["metadata"]["uid"] for pod in pods[:4]}
    assert {len(one) for one in space.racks(again, GROUP).values()} == {1}
    assert space.uids() == groups


def test_preemption_takes_a_whole_replica(space: "Space") -> None:
    """By default replicas restart as a whole. So one pod in need of room evicts one replica, and all of it."""
    space.create("LeaderWorkerSet", "serve", replicas(space, 8, 3), replica_required_topology=RACK)
    before = {pod["metadata"]["uid"]: pod for pod in space.running(24)}
    assert {one["spec"]["disruptionMode"]["all"] is not None for one in space.items("PodGroup")} == {True}
    urgent = space.worker(priorityClassName="system-cluster-critical")["spec"]
    space.create("Pod", "urgent", urgent)
    space.wait(lambda: space.read("Pod", "urgent")["status"]["phase"] == "Running", "the urgent pod")
    left = {pod["metadata"]["uid"] for pod in space.pods() if "nodeName" in pod["spec"]}
    evicted = space.counts([pod for uid, pod in before.items() if uid not in left], GROUP)
    assert [*evicted.values()] == [3]
    space.waiting(3, group_index=next(iter(evicted)))


@pytest.mark.parametrize("excluded", [False, True])
def test_exclusive_subgroups_are_groups_in_one_rack_each(space: "Space", *, excluded: bool) -> None:
    """The leader is in the first one, or in a group of its own."""
    division = {"subGroupPolicyType": "LeaderExcluded" if excluded else "LeaderWorker", "subGroupSize": 2}
    size = 5 if excluded else 4
    own = {"leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology": RACK}
    space.create("LeaderWorkerSet", "serve", replicas(space, 1, size, subGroupPolicy=division), others=own)
    pods = space.running(size)
    workers = [pod for pod in pods if not (excluded and pod["metadata"]["name"] == "serve-0")]
    racks = space.racks(workers, "subgroup-index")
    assert sorted(map(len, racks.values())) == [1, 1]
    assert racks["0"] != racks["1"]
    leader = {"leader": 1} if excluded else {}
    assert space.leaves() == names(
        {"subgroup": 1, **leader}, "subgroup.0.0", "subgroup.0.1", *(f"{one}.0" for one in leader)
    )


def test_subgroups_that_share_domains_are_one_gang(space: "Space") -> None:
    """Without the annotation of exclusive domains they are only labels."""
    division = {"subGroupPolicy": {"subGroupSize": 2}}
    space.create("LeaderWorkerSet", "serve", replicas(space, 2, 4, **division), replica_required_topology=RACK)
    assert {len(one) for one in space.racks(space.running(8), GROUP).values()} == {1}
    assert space.leaves() == {"lws.serve.replica.0": 4, "lws.serve.replica.1": 4}
