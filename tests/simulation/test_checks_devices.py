"""Histories that break the promises about devices."""

import pytest

from cpg_simulation.checks.claims import CLAIMS
from cpg_simulation.checks.devices import CLAIMS_READY, DEVICES_GIVEN_ONCE, NO_DEVICE_KEPT
from cpg_simulation.checks.history import History

LEADER = "scheduler-0"


class DeviceHistory(History):
    """A node, and pods with a claim each."""

    def __init__(self, *pods: str) -> None:
        """Let all pods wait."""
        super().__init__()
        self.node("n1")
        for name in pods:
            self.pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": f"{name}-gpu"}])
            self.put(CLAIMS, {"metadata": {"namespace": "team", "name": f"{name}-gpu"}, "spec": {}})

    def give(self, name: str, device: str = "n1/gpu-0", *, user: str = LEADER, reserved: bool = True) -> None:
        """Give a device to the claim of a pod, and reserve it for the pod."""
        pool, _, device_name = device.partition("/")
        result = {"request": "one", "driver": "gpu.example.com", "pool": pool, "device": device_name}
        uid = self.get("pods", name)["metadata"]["uid"]
        users = [{"resource": "pods", "name": name, "uid": uid}] if reserved else []
        self.status(CLAIMS, f"{name}-gpu", user, allocation={"devices": {"results": [result]}}, reservedFor=users)

    def free(self, name: str) -> None:
        """Take back the device of the claim of a pod."""
        self.status(CLAIMS, f"{name}-gpu", LEADER, allocation=None, reservedFor=[])


def test_a_device_is_given_to_one_claim() -> None:
    """It is given to another one once it is free."""
    history = DeviceHistory("a", "b")
    history.give("a")
    history.free("a")
    history.give("b")
    assert history.broken() == []
    history.give("a")
    assert history.broken() == [DEVICES_GIVEN_ONCE.name]


def test_a_scheduler_does_not_know_what_another_one_has_just_given() -> None:
    """Its own watch has not shown it."""
    history = DeviceHistory("a", "b")
    history.checks.received(LEADER, CLAIMS, history.revision, history.now)
    history.now += 5
    history.give("a", user="someone")
    history.give("b")
    assert history.broken() == []


@pytest.mark.parametrize(
    ("device", "reserved", "found"), [("n1/gpu-0", True, []), ("n2/gpu-0", True, [1]), ("n1/gpu-0", False, [1])]
)
def test_a_claim_is_ready_before_the_bind(device: str, reserved: bool, found: list[int]) -> None:  # noqa: FBT001
    """It has a device of the node, and is reserved for the pod."""
    history = DeviceHistory("a")
    history.give("a", device, reserved=reserved)
    history.bind("a", "n1")
    assert history.broken() == [CLAIMS_READY.name for _ in found]


def test_a_pod_is_not_bound_without_its_claim() -> None:
    """Nor with one that has no device, nor with a device that another claim has as well."""
    history = DeviceHistory("a")
    history.bind("a", "n1")
    gone = DeviceHistory("a")
    gone.remove(CLAIMS, "a-gpu")
    gone.bind("a", "n1")
    shared = DeviceHistory("a", "b")
    shared.give("a", user="someone")
    shared.give("b", user="someone")
    shared.bind("a", "n1")
    assert {*history.broken(), *gone.broken(), *shared.broken()} == {CLAIMS_READY.name}


def test_a_claim_that_was_freed_a_moment_before_the_bind_was_ready() -> None:
    """The scheduler was not shown that yet."""
    history = DeviceHistory("a")
    history.give("a")
    history.checks.received(LEADER, CLAIMS, history.revision, history.now)
    history.now += 5
    history.status(CLAIMS, "a-gpu", "someone", allocation=None, reservedFor=[])
    history.bind("a", "n1")
    assert history.broken() == []


def test_no_device_is_kept_for_a_pod_that_waits() -> None:
    """Nor by a process that has ended: its successor takes it back."""
    history = DeviceHistory("a", "b")
    history.give("a")
    history.bind("a", "n1")
    history.now += 100
    assert NO_DEVICE_KEPT.name not in history.settled()
    history.give("b", "n1/gpu-1")
    assert NO_DEVICE_KEPT.name in history.settled()
    other = DeviceHistory("b")
    other.give("b")
    other.checks.ended(LEADER, other.now)
    assert NO_DEVICE_KEPT.name in other.settled()


def test_a_claim_is_not_reserved_for_a_pod_that_waits() -> None:
    """Although another pod that is bound uses it."""
    history = DeviceHistory("a")
    history.give("a")
    history.bind("a", "n1")
    users = [*history.get(CLAIMS, "a-gpu")["status"]["reservedFor"], {"resource": "pods", "name": "b", "uid": "b"}]
    history.status(CLAIMS, "a-gpu", LEADER, reservedFor=users)
    assert NO_DEVICE_KEPT.name in history.settled()
