"""Pods that request extended resources which device classes back, from the watch to the bind."""

from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.claim_builders import asking, extended_claim
from cpg_engine.testing.device_builders import device_class, device_slice
from cpg_scheduler.testing.stage import Stage

GPU = "example.com/gpu"


def stage_with(*devices: str, cpu: int = 4) -> Stage:
    """Return a node with devices of a class that backs the resource."""
    return Stage(
        device_class("gpus", extended_resource_name=GPU), node("n1", cpu=cpu), device_slice(*devices, node="n1")
    )


def settled(stage: Stage) -> dict[str, str]:
    """Let everything happen; return the nodes of the pods."""
    stage.now += 60
    stage.settle()
    while stage.binder.batches:
        stage.complete_binds()
        stage.now += 60
        stage.settle()
    return {one.metadata.name: one.spec.node_name for one in stage.cache.pods.values() if one.spec.node_name}


def devices(stage: Stage) -> dict[str, list[str]]:
    """Return the devices of the claims, by the pod for which these were made."""
    return {
        claim.metadata.owner_references[0].name: [
            one.device for one in (claim.status.allocation.devices.results or () if claim.status.allocation else ())
        ]
        for claim in stage.cache.devices.claims.values()
    }


def member(number: int) -> Pod:
    """Return a pod of a gang that requests two devices."""
    return asking(f"p{number}", gpu=2, spec={"group": "pg"})


def test_a_gang_gets_devices_and_their_claims() -> None:
    """The statuses of the pods name them, so that they count once the pods are bound."""
    stage = stage_with("gpu-0", "gpu-1", "gpu-2", "gpu-3")
    stage.put(pod_group("pg", gang=2), member(0), member(1))
    assert settled(stage) == {"p0": "n1", "p1": "n1"}
    assert sorted(devices(stage).values()) == [["gpu-0", "gpu-1"], ["gpu-2", "gpu-3"]]
    for one in stage.cache.pods.values():
        made = one.status.extended_resource_claim_status
        assert made is not None
        assert stage.cache.devices.claims[f"default/{made.resource_claim_name}"].status.reserved_for is not None
    stage.put(asking("late", gpu=1))
    assert "late" not in settled(stage)


def test_devices_of_a_failed_bind_are_free_again() -> None:
    """The next attempt is given them."""
    stage = stage_with("gpu-0")
    stage.put(asking("p", gpu=1))
    stage.settle()
    stage.fail_binds(is_outdated=True)
    stage.put(asking("q", gpu=1))
    assert len(settled(stage)) == 1


def test_room_for_other_resources_helps_at_a_node_with_devices() -> None:
    """Although the node does not offer the resource itself."""
    stage = stage_with("gpu-0", cpu=1)
    running = pod("running", cpu=1, node_name="n1")
    stage.put(running, asking("p", gpu=1))
    assert list(settled(stage)) == ["running"]
    stage.delete(running)
    assert settled(stage) == {"p": "n1"}


def test_the_reservation_of_a_foreign_pod_that_ends_helps() -> None:
    """Another scheduler nominates a pod before it writes the claim."""
    stage = stage_with("gpu-0", "gpu-1")
    theirs = asking("theirs", gpu=1)
    theirs = replace(theirs, spec=replace(theirs.spec, scheduler_name="other"))
    nominated = replace(theirs, status=replace(theirs.status, nominated_node_name="n1"))
    stage.put(nominated, asking("p", gpu=2))
    assert settled(stage) == {}
    stage.delete(nominated)
    assert settled(stage) == {"p": "n1"}


def test_a_pod_waits_for_the_claim_of_an_earlier_attempt_to_go() -> None:
    """Its deletion is a change of the pod's unit; a claim of an unknown pod concerns none."""
    stage = stage_with("gpu-0")
    left = extended_claim("p")
    stage.put(left, extended_claim("unknown"), asking("p", gpu=1))
    assert settled(stage) == {}
    stage.delete(extended_claim("unknown"))
    stage.delete(left)
    assert settled(stage) == {"p": "n1"}


def test_a_class_that_appears_gives_pods_devices() -> None:
    """And one that is gone takes the resource away, unless a device plugin offers it."""
    stage = Stage(node("n1"), device_slice("gpu-0", "gpu-1", node="n1"))
    stage.put(asking("p", gpu=1))
    assert settled(stage) == {}
    backing = device_class("gpus", extended_resource_name=GPU)
    stage.put(backing)
    assert settled(stage) == {"p": "n1"}
    stage.delete(backing)
    stage.put(asking("q", gpu=1))
    assert list(settled(stage)) == ["p"]
    stage.put(node("n2", more={GPU: 1}))
    assert settled(stage)["q"] == "n2"


def test_devices_stand_for_nothing_where_the_server_cannot_say_so() -> None:
    """As before Kubernetes 1.36: then the resource has to be offered by a node."""
    stage = stage_with("gpu-0")
    stage.cache.devices.back_resources(backs=False)
    stage.put(asking("p", gpu=1))
    assert settled(stage) == {}
    stage.put(node("n2", more={GPU: 1}))
    assert settled(stage) == {"p": "n2"}
