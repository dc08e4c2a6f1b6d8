"""What is kept about nodes for pods that ask for the same devices."""

import numpy as np
import pytest

from cpg_api.core.devices import Device
from cpg_engine.cluster import device_allocator, device_room, device_rooms, device_solver
from cpg_engine.cluster.device_needs import PodDevices
from cpg_engine.cluster.device_selectors import selects
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.devices.views import SelectorError
from cpg_engine.testing.builders import node
from cpg_engine.testing.claim_builders import allocated, claiming, offer, worker
from cpg_engine.testing.device_builders import (
    claim_spec,
    device,
    device_claim,
    device_class,
    device_request,
    device_slice,
)


def ledger_with(**gpus: int) -> Ledger:
    """Return nodes with so many GPUs each."""
    ledger = Ledger()
    offer(ledger.devices, device_class())
    for name, number in gpus.items():
        ledger.put_node(node(name))
        offer(ledger.devices, device_slice(*(f"gpu-{index}" for index in range(number)), node=name))
    return ledger


def devices_of(ledger: Ledger, name: str, count: int = 1) -> PodDevices:
    """Return what a worker with so many GPUs needs."""
    found = ledger.class_of(worker(ledger.devices, name, device_request(count=count))).devices
    assert found is not None
    return found


def slots(ledger: Ledger, devices: PodDevices) -> list[int]:
    """Return for how many pods the nodes have devices."""
    room = ledger.device_allocator.room(devices)
    assert room is not None
    found: list[int] = room.slots(ledger.cluster.everything()).tolist()
    return found


def test_nothing_that_is_kept_grows_without_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes, rooms, selectors, solutions and groups are dropped, and found again."""
    for module, names in (
        (device_rooms, ("MAX_CACHED_SHAPES", "MAX_CACHED_ROOMS")),
        (device_allocator, ("MAX_CACHED_SELECTORS",)),
        (device_solver, ("MAX_SOLUTIONS", "MAX_SEARCHES")),
        (device_room, ("MAX_STALE_GROUPS",)),
    ):
        for name in names:
            monkeypatch.setattr(module, name, 1)
    ledger = ledger_with(a=4, b=2, c=8)
    needs = [devices_of(ledger, f"p{count}", count) for count in (1, 2, 3)]
    pairs = ledger.class_of(worker(ledger.devices, "q", device_request(count=2), match="numa")).devices
    assert pairs is not None
    assert slots(ledger, pairs) == [0, 0, 0]
    assert [slots(ledger, one) for one in needs] == [[4, 2, 8], [2, 1, 4], [1, 0, 2]]
    for number in range(200):
        offered = number % 7
        gpus = (device(f"gpu-{index}", {"numa": index // 3}) for index in range(offered))
        offer(ledger.devices, device_slice(*gpus, node="b"))
        assert slots(ledger, pairs)[1] == (0, 0, 1, 1, 1, 2, 2)[offered]
        taken = [f"gpu-{index}" for index in range(8) if number >> index & 1]
        offer(ledger.devices, allocated(device_claim("many"), "c", *taken))
        assert slots(ledger, needs[0]) == [4, offered, 8 - len(taken)]
    for name, at in (("x", "a"), ("y", "b")):
        offer(ledger.devices, allocated(device_claim(name), at, "gpu-0"))
        found = ledger.class_of(claiming("q", name)).devices
        assert found is not None
        reach = ledger.device_allocator.reachable(found)
        assert reach is not None
        assert reach.sum() == 1
        assert ledger.device_allocator.reaches(found, ledger.cluster.everything()) == []


def test_a_search_that_is_hard_on_every_node_gets_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim may be made to be hard; then its searches are cut, and no node has devices for it."""
    monkeypatch.setattr(device_solver, "MAX_STEPS_IN_SUM", 0)
    monkeypatch.setattr(device_solver, "MIN_STEPS", 0)
    ledger = ledger_with(a=4)
    assert slots(ledger, devices_of(ledger, "p", 2)) == [0]


def test_a_selector_that_fails_has_a_reason() -> None:
    """Of the compilation or of the evaluation."""
    assert selects('device.driver == "d"', "d", Device("x"))
    with pytest.raises(SelectorError):
        selects("device.driver ==", "d", Device("x"))
    with pytest.raises(SelectorError):
        selects('device.attributes["d"].model == "a"', "d", device("x"))


def test_a_claim_that_is_gone_leaves_its_class_without_a_place() -> None:
    """A class of pods may outlive the claims that it was made from."""
    ledger = ledger_with(a=1)
    found = devices_of(ledger, "p")
    ledger.devices.remove_claim("default", "p-gpu")
    assert ledger.device_allocator.problem(found) == "a ResourceClaim is gone"
    assert ledger.device_allocator.room(found) is None


def test_pods_that_are_placed_without_devices_take_none() -> None:
    """A simulation may place pods again in another order; its placement is undone like any other."""
    ledger = ledger_with(a=1)
    offer(ledger.devices, device_claim("shared", claim_spec(device_request(count=2))))
    alone = ledger.class_of(worker(ledger.devices, "p"))
    both = ledger.class_of(claiming("q", "shared"))
    row = np.array([ledger.cluster.row_of["a"]])
    ledger.device_allocator.refresh()
    pool = ledger.device_allocator.stock.targets(int(row[0]))[0].pool.id
    for pod_class in (both, alone, alone):
        ledger.place(pod_class, row)
    assert ledger.device_allocator.stock.state(pool).taken == 1
    assert ledger.device_allocator.could_stay(int(row[0]))
    assert ledger.device_allocator.stock.state(pool).taken == 1
    ledger.rollback(0)
    assert ledger.device_allocator.stock.state(pool).taken == 0


@pytest.mark.parametrize("number", [2, 3])
def test_what_pods_were_given_together_is_undone_one_by_one(number: int) -> None:
    """Each placement that is undone leaves the devices as they were before it."""
    ledger = ledger_with()
    ledger.put_node(node("a"))
    parts = [device(f"d{size}", counters={"m": {"s": size}}) for size in (4, 3, 2, 1)]
    offer(
        ledger.devices,
        device_slice(node="a", name="counters", count=2, counters={"m": {"s": 6}}),
        device_slice(*parts, node="a", name="parts", count=2),
    )
    pod_class, row = ledger.class_of(worker(ledger.devices, "p")), np.array([ledger.cluster.row_of["a"]])
    ledger.device_allocator.refresh()
    pool, states = ledger.device_allocator.stock.targets(int(row[0]))[0].pool.id, []
    for _ in range(number):
        states.append(ledger.device_allocator.stock.state(pool))
        ledger.place(pod_class, row)
    assert ledger.device_allocator.stock.state(pool).taken.bit_count() == number
    for mark in reversed(range(number)):
        ledger.rollback(mark)
        assert ledger.device_allocator.stock.state(pool) == states[mark]


def test_searches_for_several_pods_are_kept_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """In whatever order the same situations come back, the answers are the same."""
    monkeypatch.setattr(device_solver, "MAX_SOLUTIONS", 1)
    ledger = ledger_with(a=1)
    pairs = ledger.class_of(worker(ledger.devices, "q", device_request(count=2), match="numa")).devices
    assert pairs is not None
    for offered, expected in ((4, 1), (6, 2), (4, 1)):
        gpus = (device(f"gpu-{index}", {"numa": index // 3}) for index in range(offered))
        offer(ledger.devices, device_slice(*gpus, node="a"))
        assert slots(ledger, pairs) == [expected]


def test_a_node_may_have_several_pools() -> None:
    """Each is read again when it changes, and the others stay what they are."""
    ledger = ledger_with(a=1)
    needs = devices_of(ledger, "p")
    for offered in (2, 3, 0):
        more = [f"d{index}" for index in range(offered)]
        offer(ledger.devices, device_slice(*more, node="a", pool="more"))
        assert slots(ledger, needs) == [1 + offered]
