"""Histories of claims: pods come and go, binds work, fail or stop half-way, and no device is given twice."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.core.devices import AllocationResult, DeviceResult, ResourceClaim, ResourceClaimStatus, ResourceSlice
from cpg_api.core.pod import Pod
from cpg_engine.decisions import DeviceAllocation
from cpg_engine.testing.builders import node, pod_group
from cpg_engine.testing.claim_builders import claiming, own_claim
from cpg_engine.testing.device_builders import device_class, device_slice
from cpg_scheduler.binding.claim_writes import carried_out
from cpg_scheduler.cache.devices import device_claims_of
from cpg_scheduler.testing.stage import Stage

NODES, DEVICES_PER_NODE, SHARED = 3, 2, "shared"
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["pod", "gang", "share", "pass", "bind", "refuse", "fail", "crash", "delete", "slice"]),
        st.integers(0, 5),
    ),
    min_size=4,
    max_size=40,
)


class History:
    """A stage with devices, and what may happen to it; every pod has a name of its own."""

    def __init__(self) -> None:
        """Start with nodes that offer devices."""
        names = [f"n{number}" for number in range(NODES)]
        self.stage = Stage(device_class(), *map(node, names), *map(self.offer, names))
        self.stage.put(replace(own_claim(SHARED), metadata=replace(own_claim(SHARED).metadata, owner_references=())))
        self.created = 0

    def offer(self, name: str, more: int = 0) -> ResourceSlice:
        """Return the slice of a node."""
        return device_slice(*(f"gpu-{number}" for number in range(DEVICES_PER_NODE + more)), node=name)

    def create(self, group: str | None = None) -> None:
        """Create a pod with a claim of its own."""
        self.created += 1
        name = f"p{self.created}"
        self.stage.put(own_claim(name), claiming(name, made={"gpu": f"{name}-gpu"}, group=group))

    def step(self, what: str, number: int) -> None:
        """Let one thing happen."""
        stage, pods = self.stage, sorted(self.pods(), key=lambda pod: pod.metadata.name)
        match what:
            case "pod":
                self.create()
            case "gang":
                stage.put(pod_group(f"g{self.created}", gang=2))
                group = f"g{self.created}"
                self.create(group)
                self.create(group)
            case "share":
                self.created += 1
                stage.put(claiming(f"s{self.created}", f"{SHARED}-gpu"))
            case "pass":
                stage.now += 10
                stage.run_passes()
            case "bind" | "refuse":
                stage.complete_binds([pod.metadata.name for pod in pods[:number]] if what == "refuse" else ())
            case "fail" | "crash":
                if what == "crash":
                    self.write_claims(number)
                stage.fail_binds()
            case "delete" if pods:
                self.delete(pods[number % len(pods)])
            case "slice":
                stage.put(self.offer(f"n{number % NODES}", number))

    def pods(self) -> list[Pod]:
        """Return the pods."""
        return [found for found in self.stage.objects() if isinstance(found, Pod)]

    def claims(self) -> dict[str, ResourceClaim]:
        """Return the claims as the API server has them."""
        return {found.metadata.key: found for found in self.stage.objects() if isinstance(found, ResourceClaim)}

    def write_claims(self, number: int) -> None:
        """Allocate some of the claims of batches whose pods are not bound then."""
        allocated = [
            (batch.pods[uid], one)
            for batch in self.stage.binder.batches
            for uid, several in batch.allocations.items()
            for one in several
            if isinstance(one, DeviceAllocation) and uid in self.stage.cache.pods
        ]
        for pod, one in allocated[:number]:
            self.stage.put(carried_out(self.claims()[one.claim], one, pod))

    def delete(self, pod: Pod) -> None:
        """Delete a pod, and do with its claims what kube-controller-manager does."""
        self.stage.delete(pod)
        for claim in (self.claims()[key] for key in device_claims_of(pod)):
            users = tuple(user for user in claim.status.reserved_for or () if user.uid != pod.metadata.uid)
            if claim.metadata.owner_references:
                self.stage.delete(claim)
            elif len(users) < len(claim.status.reserved_for or ()):
                status = replace(claim.status, reserved_for=users) if users else ResourceClaimStatus()
                self.stage.put(replace(claim, status=status))

    def taken(self) -> Counter[tuple[str, str]]:
        """Return how often each device is given to a claim, in the API or by what is being bound."""
        results = {key: claim.status.allocation for key, claim in self.claims().items()}
        for bind in self.stage.cache.assumed.values():
            results |= {one.claim: one.result for one in bind.allocations if isinstance(one, DeviceAllocation)}
        return Counter((one.pool, one.device) for found in results.values() for one in devices_of(found))


def devices_of(result: AllocationResult | None) -> Sequence[DeviceResult]:
    """Return the devices of an allocation."""
    return (result.devices.results or ()) if result is not None else ()


@settings(max_examples=300)
@given(steps=STEPS)
def test_no_device_is_given_twice(steps: list[tuple[str, int]]) -> None:
    """At any moment; bound pods are where their devices are, and at the end no pod waits while a device is free."""
    history = History()
    for what, number in steps:
        history.step(what, number)
        assert max(history.taken().values(), default=0) <= 1
    stage = history.stage
    for _ in range(4):
        stage.settle(1000.0)
    claims = history.claims()
    for pod in history.pods():
        held = [claims[key] for key in device_claims_of(pod)]
        if pod.spec.node_name:
            pools = {one.pool for claim in held for one in devices_of(claim.status.allocation)}
            assert pools == {pod.spec.node_name}
    singles = [pod for pod in history.pods() if not stage.cache.group_of(pod)]
    assert len(history.taken()) >= NODES * DEVICES_PER_NODE or all(pod.spec.node_name for pod in singles)


@pytest.mark.parametrize("written", range(5))
def test_a_new_leader_completes_what_was_allocated(written: int) -> None:
    """The leader is killed after so many claims of a gang of four; their pods go where their devices are."""
    history = History()
    history.stage.put(pod_group("g", gang=4))
    for _ in range(4):
        history.create("g")
    history.stage.run_passes()
    history.write_claims(written)
    before = {key: claim.status.allocation for key, claim in history.claims().items() if claim.status.allocation}
    history.stage = Stage(*history.stage.objects())
    history.stage.settle()
    after = {key: claim.status.allocation for key, claim in history.claims().items()}
    assert (len(before), len(history.stage.bound())) == (written, 4)
    assert {key: after[key] for key in before} == before
    assert sorted(history.taken().values()) == [1] * 4
