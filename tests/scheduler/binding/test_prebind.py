"""PreBind: a batch waits for its volumes, and ends if it cannot have them."""

import asyncio

import pytest

from cpg_engine.testing.builders import pod
from cpg_engine.testing.storage_builders import claim, using, volume
from cpg_scheduler.binding import binder
from cpg_scheduler.binding.batch import (
    BindFailure,
    PreBindFailed,
    PreBindPending,
)
from cpg_scheduler.testing.binder_fixture import (
    binding_with_volumes,
    run_others,
)


async def test_no_pod_is_bound_before_all_volumes_of_the_batch_are() -> None:
    """The claims get their node at once, and the gate is open while the batch waits."""
    async with binding_with_volumes() as bench:
        assert [write.method for write in bench.api.writes] == ["PATCH", "PATCH"]
        bench.stage.put(pod("other", cpu=1))
        bench.bind_claim("x")
        await run_others()
        assert (len(bench.api.writes), bench.outcomes, bench.binder.active) == (2, [], 1)
        await bench.gate.wait_open()
        bench.bind_claim("y")
    assert (bench.outcomes, bench.sent("a"), bench.sent("b")) == (["bound ab"], 1, 1)


async def test_a_claim_without_a_volume_ends_the_batch() -> None:
    """All its pods report the claim, and the allocations are forgotten."""
    async with binding_with_volumes() as bench:
        bench.bind_claim("x")
        bench.show_claim("y")
    assert (bench.outcomes, bench.assumed(), bench.sent("a")) == (["failed ab"], [], 0)
    problem = 'no volume could be made for persistentvolumeclaim "default/y": its events say why'
    uids = frozenset({"uid-default-a", "uid-default-b"})
    assert bench.failure == BindFailure(uids, PreBindFailed("volumes", problem))
    assert bench.stage.cache.snapshot.ledger.volume_allocator.allocated == {}


async def test_a_later_batch_of_a_unit_waits_for_the_volumes_of_the_earlier_one() -> None:
    """A late member is not bound to a gang that is not."""
    async with binding_with_volumes() as bench:
        bench.stage.put(claim("z"), pod("c", cpu=1, volumes=using("z")))
        bench.start("c", unit="a")
        bench.start("d")
        await run_others()
        assert bench.outcomes == ["bound d"]
        bench.show_claim("y")
    assert bench.outcomes == ["bound d", "failed ab", "failed c"]
    assert (bench.failure.is_outdated, bench.sent("c")) == (True, 0)


async def test_a_later_batch_is_bound_once_the_earlier_one_has_its_volumes() -> None:
    """No batch is remembered afterwards."""
    async with binding_with_volumes() as bench:
        bench.start("c", unit="a")
        bench.bind_claim("x")
        bench.bind_claim("y")
    assert sorted(bench.outcomes) == ["bound ab", "bound c"]
    assert bench.binder._latest == {}


async def test_a_claim_bound_to_an_unreachable_volume_drops_the_batch() -> None:
    """The claim was bound to another volume than the one that was chosen."""
    async with binding_with_volumes() as bench:
        bench.stage.put(volume("pv-x", at={"zone": ["far"]}))
        bench.show_claim("x", bound_to="pv-x")
        bench.bind_claim("y")
    assert (bench.outcomes, bench.failure.is_outdated, bench.sent("a")) == (["failed ab"], True, 0)


async def test_a_batch_that_waits_long_for_volumes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the claims that it waits for."""
    monkeypatch.setattr(binder, "SLOW_SECONDS", 0.0)
    async with binding_with_volumes() as bench:
        await asyncio.sleep(0.01)
        bench.bind_claim("x")
        bench.bind_claim("y")
    claims = ('persistentvolumeclaim "default/x"', 'persistentvolumeclaim "default/y"')
    uids = frozenset({"uid-default-a", "uid-default-b"})
    assert bench.delays == [BindFailure(uids, PreBindPending("volumes", claims))]
