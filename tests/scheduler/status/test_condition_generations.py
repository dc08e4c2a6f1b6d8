"""The generation that a condition of a group is about: it never goes back."""

import asyncio
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from cpg_api.meta import Condition
from cpg_api.scheduling.forest import key_of
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_client.errors import ApiError
from cpg_engine.testing.builders import pod_group

if TYPE_CHECKING:
    from tests.scheduler.status.conftest import StatusFixture


def of_generation(generation: int) -> PodGroup:
    """Return the group as it was in a generation."""
    group = pod_group("pg")
    return replace(group, metadata=replace(group.metadata, generation=generation))


def with_condition(status: str, generation: int) -> PodGroup:
    """Return the group with a condition that the operator has written about a generation."""
    kind = "PodGroupInitiallyScheduled"
    condition = Condition(type=kind, status=status, reason="WaitingForGroup", observed_generation=generation)
    return replace(of_generation(generation), status=PodGroupStatus(conditions=(condition,)))


def generations(status: "StatusFixture") -> list[int]:
    """Return the generations of the conditions that were written."""
    return [condition["observedGeneration"] for condition in status.conditions()]


@pytest.mark.parametrize("is_shown", [False, True])
async def test_an_older_attempt_that_ends_last_does_not_take_it_back(
    status: "StatusFixture",
    is_shown: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Its binds were in doubt for longer than those of an attempt at a newer generation."""
    status.report(of_generation(2), "the newer bind has failed")
    await status.writer.drained()
    if is_shown:
        status.show(with_condition("False", 2))
    status.report(of_generation(1), "the older bind has failed")
    await status.writer.drained()
    assert status.messages() == ["the newer bind has failed", "the older bind has failed"]
    assert generations(status) == [2, 2]


async def test_the_operator_may_write_about_a_newer_one_while_a_condition_is_queued(status: "StatusFixture") -> None:
    """Then it is about that one as well."""
    status.report(of_generation(1), "too few")
    status.show(with_condition("False", 5))
    await status.writer.drained()
    assert generations(status) == [5]


async def test_a_final_condition_is_about_the_newest_that_was_shown(status: "StatusFixture") -> None:
    """The operator may have written it about a newer one, while ours was refused."""
    refusals = iter([ApiError(500, "InternalError", "etcd is down"), None])
    status.api.error = lambda _: next(refusals, None)
    status.report_scheduled(of_generation(1))
    await status.writer.drained()
    newer = with_condition("True", 5)
    status.cached_groups[key_of(newer)] = newer
    await asyncio.sleep(0.05)
    await status.writer.drained()
    assert generations(status) == [5]
