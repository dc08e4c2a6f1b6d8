"""RayClusters and RayJobs, with their real controller: where their pods are bound, and which groups there are."""

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.e2e.workloads.conftest import Space

pytestmark = [pytest.mark.e2e, pytest.mark.workloads]

Plain = dict[str, Any]
RACK = "topology.cpg.dev/rack"
GROUP = "group"


def ray(space: "Space", *groups: Plain, **spec: object) -> Plain:
    """Return the spec of a RayCluster."""
    head = {"rayStartParams": {}, "template": space.worker("1")}
    return {"rayVersion": "2.46.0", "headGroupSpec": head, "workerGroupSpecs": list(groups), **spec}


def workers(space: "Space", name: str, replicas: int, least: int, **spec: object) -> Plain:
    """Return a group of workers."""
    sizes = {"replicas": replicas, "minReplicas": least, "maxReplicas": 20}
    return {"groupName": name, **sizes, "rayStartParams": {}, "template": space.worker("1"), **spec}


def change_group(space: "Space", **fields: object) -> None:
    """Change the first group of workers, as the autoscaler does."""
    groups = space.read("RayCluster", "rays")["spec"]["workerGroupSpecs"]
    groups[0] |= fields
    space.change("RayCluster", "rays", workerGroupSpecs=groups)


def test_head_and_workers_are_one_gang(space: "Space") -> None:
    """A cluster that does not fit waits as a whole. Replicas beyond the maximum of their group are not created."""
    groups = [workers(space, "cpu", 3, 0), workers(space, "GPU", 9, 0, maxReplicas=2)]
    space.create("RayCluster", "rays", ray(space, *groups), required_topology=RACK)
    assert {len(one) for one in space.racks(space.running(6)).values()} == {1}
    assert space.leaves() == {
        f"raycluster.rays.{name}": size for name, size in (("headgroup", 1), ("cpu", 3), ("gpu", 2))
    }
    assert space.composites() == {"raycluster.rays.root": 3}
    space.create("RayCluster", "large", ray(space, workers(space, "cpu", 12, 0)), required_topology=RACK)
    space.waiting(13, cluster="large")
    change_group(space, replicas=5)
    assert {len(one) for one in space.racks(space.running(8, cluster="rays")).values()} == {1}
    space.wait(lambda: space.leaves()["raycluster.rays.cpu"] == 5, "the minimum of 5")


def test_a_cluster_that_autoscales_needs_only_its_least_size(space: "Space") -> None:
    """The autoscaler writes replicas, or the workers to delete. Workers that it adds join the others in their rack."""
    spec = ray(space, workers(space, "cpu", 2, 1), workers(space, "idle", 0, 0), enableInTreeAutoscaling=True)
    space.create("RayCluster", "rays", spec, required_topology=RACK)
    space.running(3)
    assert space.leaves() == {f"raycluster.rays.{name}": 1 for name in ("headgroup", "cpu", "idle")}
    assert space.composites() == {"raycluster.rays.root": 2}
    groups = space.uids()
    change_group(space, replicas=4)
    pods = space.running(5)
    assert {len(one) for one in space.racks(pods).values()} == {1}
    *gone, _ = [pod["metadata"]["name"] for pod in pods if space.suffix_value(pod, GROUP) == "cpu"]
    change_group(space, replicas=1, scaleStrategy={"workersToDelete": gone})
    assert not set(gone) & {pod["metadata"]["name"] for pod in space.running(2)}
    assert space.uids() == groups


def test_workers_of_several_hosts_count_all_hosts(space: "Space") -> None:
    """A replica of four hosts that is added has to fit as well."""
    spec = ray(space, workers(space, "tpu", 2, 0, numOfHosts=4))
    space.create("RayCluster", "rays", spec)
    space.running(9)
    assert space.leaves() == {"raycluster.rays.headgroup": 1, "raycluster.rays.tpu": 8}
    change_group(space, replicas=3)
    space.running(13)
    space.wait(lambda: space.leaves()["raycluster.rays.tpu"] == 12, "the minimum of 12")


def test_a_suspended_cluster_comes_back_as_a_whole(space: "Space") -> None:
    """Its pods are deleted and created again, and its groups stay."""
    space.create("RayCluster", "rays", ray(space, workers(space, "cpu", 3, 0)))
    space.running(4)
    groups = space.uids()
    space.change("RayCluster", "rays", suspend=True)
    space.wait(lambda: not space.pods(), "the end of the pods")
    space.change("RayCluster", "rays", suspend=False)
    space.running(4)
    assert space.uids() == groups


def test_the_submitter_of_a_ray_job_is_outside_of_its_gang(space: "Space") -> None:
    """It is created once the cluster is ready, and placed alone."""
    submitter = space.worker("1", restartPolicy="Never")
    spec = {
        "entrypoint": "python -c 1",
        "rayClusterSpec": ray(space, workers(space, "cpu", 3, 0)),
        "submitterPodTemplate": submitter,
    }
    space.create("RayJob", "fit", spec)
    pods = space.running(5)
    assert space.counts(pods, GROUP) == {"headgroup": 1, "cpu": 3, "-": 1}
    (cluster,) = space.items("RayCluster")
    name = cluster["metadata"]["name"]
    assert space.leaves() == {f"raycluster.{name}.headgroup": 1, f"raycluster.{name}.cpu": 3}
