"""Random histories of claims: no device is given twice, and the ledger is what the objects say."""

from collections.abc import Iterator

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from cpg_api.core.devices import ConsumerReference, DeviceResult, ResourceClaimStatus
from cpg_api.core.pod import Pod
from cpg_api.core.resources import ResourceList
from cpg_api.scheduling.forest import Forest, key_of
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cycle import decide
from cpg_engine.decisions import Bind, DeviceAllocation, ExtendedAllocation
from cpg_engine.devices.values import PoolId, PoolState
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, tree_unit
from cpg_engine.preemption.plan import plan_preemption
from cpg_engine.snapshot import new_snapshot
from cpg_engine.testing.builders import node, pod_group
from cpg_engine.testing.claim_builders import asking, claiming, extended_claim, own_claim, zone_slice
from cpg_engine.testing.device_builders import device, device_claim, device_class, device_request, device_slice
from cpg_engine.testing.listed_budgets import ListedBudgets
from cpg_engine.testing.victim_units import units_of

NODES = {"n1": "a", "n2": "a", "n3": "b"}
GPUS = 4
RESOURCE = "example.com/gpu"
Device = tuple[str, str, str]


class DeviceMachine(RuleBasedStateMachine):
    """Slices, claims and pods come and go; decisions are carried out, or fail."""

    def __init__(self) -> None:
        """Start with three nodes without devices."""
        super().__init__()
        self.snapshot = new_snapshot()
        self.ledger = self.snapshot.ledger
        self.ledger.devices.put_class(device_class())
        self.put_class(backs=True)
        for name, zone in NODES.items():
            self.ledger.put_node(node(name, cpu=8, labels={"zone": zone}))
        self.pods: dict[str, Pod] = {}
        self.assumed: dict[str, tuple[Bind, Pod]] = {}
        self.made = 0

    # What drivers and users do.

    @rule(name=st.sampled_from(sorted(NODES)), number=st.integers(0, GPUS))
    def put_node(self, name: str, number: int) -> None:
        """Have the device plugin of a node offer so many of the resource."""
        more: ResourceList | None = {RESOURCE: number} if number else None
        self.ledger.put_node(node(name, cpu=8, labels={"zone": NODES[name]}, more=more))

    @rule(backs=st.booleans())
    def put_class(self, backs: bool) -> None:  # noqa: FBT001 - given by hypothesis
        """Have a class back the resource, or not."""
        self.ledger.devices.put_class(device_class("backing", extended_resource_name=RESOURCE if backs else None))

    @rule(name=st.sampled_from(sorted(NODES)), number=st.integers(0, GPUS))
    def put_slice(self, name: str, number: int) -> None:
        """Have a node offer so many devices, two at each NUMA node."""
        devices = (device(f"gpu-{index}", {"numa": index // 2}) for index in range(number))
        self.ledger.devices.put_slice(device_slice(*devices, node=name))

    @rule(number=st.integers(0, 2))
    def put_shared_slice(self, number: int) -> None:
        """Have all nodes of a zone be able to use so many devices."""
        self.ledger.devices.put_slice(
            zone_slice("a", *(device(f"net-{index}", {"numa": 9}) for index in range(number)))
        )

    @rule(choice=st.randoms(use_true_random=False))
    @precondition(lambda self: self.pods)
    def end_pod(self, choice: object) -> None:
        """Have a pod that runs end; its claims stay allocated until they are released."""
        name = choice.choice(sorted(self.pods))  # type: ignore[attr-defined]
        del self.pods[name]
        self.ledger.remove_pod(f"uid-default-{name}")

    @rule()
    def release_claims(self) -> None:
        """Deallocate the claims of pods that are gone, as kube-controller-manager does."""
        for claim in list(self.ledger.devices.claims.values()):
            users = [one for one in claim.status.reserved_for or () if one.name in {*self.pods, *self.assumed}]
            if claim.status.allocation is not None and not users:
                self.ledger.devices.put_claim(replace(claim, status=ResourceClaimStatus()))

    # What the scheduler does.

    @rule(
        size=st.integers(1, 4),
        gpus=st.integers(1, 2),
        match=st.sampled_from([None, "numa"]),
        shared=st.booleans(),
        zone=st.booleans(),
    )
    def decide_gang(self, size: int, gpus: int, match: str | None, shared: bool, zone: bool) -> None:  # noqa: FBT001 - given by hypothesis
        """Decide about a gang, and assume what was decided."""
        self.made += 1
        name, request = f"g{self.made}", device_request(count=gpus)
        pods: list[Pod] = []
        if shared:
            self.ledger.devices.put_claim(device_claim(name))
        for index in range(size):
            claim = own_claim(f"{name}-{index}", request, match=match)
            self.ledger.devices.put_claim(claim)
            made = {"gpu": claim.metadata.name}
            pods.append(claiming(f"{name}-{index}", *([name] if shared else ()), made=made, cpu=1, group=name))
        self.decide(name, pods, key="zone" if zone else None)

    @rule(size=st.integers(1, 4), gpus=st.integers(1, 2), claims=st.booleans())
    def decide_gang_with_resources(self, size: int, gpus: int, claims: bool) -> None:  # noqa: FBT001 - given by hypothesis
        """Decide about a gang whose pods request the resource; each may have a claim as well."""
        self.made += 1
        name, pods = f"g{self.made}", []
        for index in range(size):
            found = asking(f"{name}-{index}", gpu=gpus, spec={"group": name})
            if claims:
                claim = own_claim(found.metadata.name)
                self.ledger.devices.put_claim(claim)
                claimed = claiming(found.metadata.name, made={"gpu": claim.metadata.name}, group=name)
                found = replace(claimed, spec=replace(claimed.spec, containers=found.spec.containers))
            pods.append(found)
        free = {row: self.offered(row) - used for row, used in self.used().items()}
        for bind in self.decide(name, pods):
            row = self.ledger.cluster.row_of[bind.node]
            made = [one for one in bind.allocations if isinstance(one, ExtendedAllocation)]
            if self.offered(row):
                free[row] -= gpus
                assert (made, free[row] >= 0) == ([], True)
            else:
                assert [len(one.result.devices.results or ()) for one in made] == [gpus]

    def decide(self, name: str, pods: list[Pod], key: str | None = None) -> tuple[Bind, ...]:
        """Decide about a gang, and assume what was decided."""
        size = len(pods)
        group = pod_group(name, gang=size, key=key)
        tree = next(iter(Forest.of([group]).trees()))
        unit = tree_unit(tree, {key_of(group): GroupPods(pending=pods)}, self.ledger)
        before, free = self.states(self.ledger), self.held()
        decision = decide(self.snapshot, unit, SearchOptions())
        plan_preemption(
            self.snapshot,
            unit,
            SearchOptions(),
            priority=100,
            units=units_of([], self.pods.values()),
            budgets=ListedBudgets([]),
        )
        assert self.states(self.ledger) == before
        new = {one.claim: one for bind in decision.binds for one in devices_of(bind) if is_new(one)}
        given = [found for one in new.values() for found in places(one.result.devices.results)]
        assert len(set(given)) == len(given)
        assert free.isdisjoint(given)
        assert len(decision.binds) in {0, size}
        for bind in decision.binds:
            found = next(one for one in pods if one.metadata.uid == bind.uid)
            claims = {one.claim for one in bind.allocations if isinstance(one, DeviceAllocation)}
            assert claims == {f"default/{name}" for name in claim_names(found)}
            self.ledger.put_pod(found, bind.node)
            self.ledger.allocators.assume(bind.allocations)
            self.assumed[found.metadata.name] = (bind, found)
        return decision.binds

    @rule(works=st.booleans())
    @precondition(lambda self: self.assumed)
    def end_bind(self, works: bool) -> None:  # noqa: FBT001 - given by hypothesis
        """Have the API show the oldest bind with its claims, or have it fail."""
        name = next(iter(self.assumed))
        bind, found = self.assumed.pop(name)
        if works:
            self.write(bind, found)
            for other, waiting in self.assumed.values():
                self.write(other, waiting)
            self.ledger.allocators.forget(bind.allocations)
            self.pods[name] = replace(found, spec=replace(found.spec, node_name=bind.node))
            self.ledger.put_pod(self.pods[name], bind.node)
            return
        self.ledger.remove_pod(found.metadata.uid)
        needed = {one.claim for other, _ in self.assumed.values() for one in devices_of(other)}
        self.ledger.allocators.forget([one for one in devices_of(bind) if one.claim not in needed])

    def write(self, bind: Bind, found: Pod) -> None:
        """Write what a bind allocates, and reserve it for the pod; a batch writes all of its claims before a bind."""
        user = ConsumerReference("", "pods", found.metadata.name, found.metadata.uid)
        for one in devices_of(bind):
            if isinstance(one, ExtendedAllocation):
                claim = extended_claim(found.metadata.name)
            else:
                claim = self.ledger.devices.claims[one.claim]
            users = dict.fromkeys((*(claim.status.reserved_for or ()), user))
            self.ledger.devices.put_claim(replace(claim, status=ResourceClaimStatus(one.result, tuple(users))))

    # What holds.

    def offered(self, row: int) -> int:
        """Return how much of the resource the node of a row offers itself."""
        found = self.ledger.cluster.nodes[row]
        return int((found.status.allocatable or {}).get(RESOURCE, 0)) if found is not None else 0

    def used(self) -> dict[int, int]:
        """Return how much of the resource the pods of each node request."""
        used = dict.fromkeys(self.ledger.cluster.row_of.values(), 0)
        for uid in (one.metadata.uid for one in (*self.pods.values(), *(found for _, found in self.assumed.values()))):
            location = self.ledger.location_of(uid)
            if location is not None:
                used[location[1]] += location[0].requests.get(RESOURCE, 0)
        return used

    def held(self) -> set[Device]:
        """Return the devices of all claims, by the API or assumed."""
        claims = self.ledger.devices.claims.values()
        shown = (claim.status.allocation for claim in claims if claim.status.allocation is not None)
        assumed = (one.result for bind, _ in self.assumed.values() for one in devices_of(bind))
        return {found for result in (*shown, *assumed) for found in places(result.devices.results)}

    @staticmethod
    def states(ledger: Ledger) -> dict[PoolId, PoolState]:
        """Return what is taken of every pool."""
        ledger.device_allocator.refresh()
        return {pool: ledger.device_allocator.stock.state(pool) for pool in sorted(ledger.device_allocator.stock.pools)}

    @invariant()
    def the_ledger_is_as_if_it_was_new(self) -> None:
        """Compare what is taken with a ledger that is given all objects at once, and what is assumed."""
        fresh = Ledger()
        for name, zone in NODES.items():
            fresh.put_node(node(name, cpu=8, labels={"zone": zone}))
        for found in self.ledger.devices.slices.values():
            fresh.devices.put_slice(found)
        for claim in self.ledger.devices.claims.values():
            fresh.devices.put_claim(claim)
        for bind, _ in self.assumed.values():
            fresh.allocators.assume(bind.allocations)
        assert self.states(self.ledger) == self.states(fresh)


def devices_of(bind: Bind) -> Iterator[DeviceAllocation | ExtendedAllocation]:
    """Yield what a bind allocates of devices."""
    return (one for one in bind.allocations if isinstance(one, DeviceAllocation | ExtendedAllocation))


def is_new(one: DeviceAllocation | ExtendedAllocation) -> bool:
    """Return whether devices are allocated that the API does not show."""
    return isinstance(one, ExtendedAllocation) or one.is_new


def places(results: tuple[DeviceResult, ...] | None) -> list[Device]:
    """Return the devices of results."""
    return [(one.driver, one.pool, one.device) for one in results or ()]


def claim_names(found: Pod) -> list[str]:
    """Return the names of the claims of a pod."""
    made = {one.name: one.resource_claim_name for one in found.status.resource_claim_statuses or ()}
    return [one.resource_claim_name or made[one.name] or "" for one in found.spec.resource_claims or ()]


TestDevices = DeviceMachine.TestCase
TestDevices.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
