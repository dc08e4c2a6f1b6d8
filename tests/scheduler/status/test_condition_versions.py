"""Conditions of groups are applied to the version that is known, and a conflict waits for the watch."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from cpg_api.meta import Condition
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_client.errors import ApiError
from cpg_engine.testing.builders import pod_group
from cpg_scheduler.testing.fake_connection import SentRequest

if TYPE_CHECKING:
    from tests.scheduler.status.conftest import StatusFixture


def version(number: str, uid: str = "uid-default-pg") -> PodGroup:
    """Return a version of a group."""
    group = pod_group("pg")
    return replace(group, metadata=replace(group.metadata, uid=uid, resource_version=number))


def refuse_first(status: "StatusFixture", now: PodGroup) -> None:
    """Refuse writes to version 7, and let the watch show the present one then."""

    def conflict(write: SentRequest) -> ApiError | None:
        if write.body["metadata"].get("resourceVersion") != "7":
            return None
        status.show(now)
        return ApiError(409, "Conflict", "the object has been modified")

    status.show(version("7"))
    status.api.error = conflict


async def test_a_final_condition_of_the_operator_is_never_overwritten(status: "StatusFixture") -> None:
    """The operator has written meanwhile that the group was placed."""
    placed = Condition(type="PodGroupInitiallyScheduled", status="True", reason="Scheduled", message="placed")
    refuse_first(status, replace(version("8"), status=PodGroupStatus(conditions=(placed,))))
    status.report(version("7"), "too few")
    await status.writer.drained()
    assert status.api.writes == []
    assert status.log.calls == []


async def test_a_final_condition_is_written_to_the_next_version(status: "StatusFixture") -> None:
    """The operator has written its counts meanwhile."""
    refuse_first(status, version("8"))
    status.report_scheduled(version("7"))
    await status.writer.drained()
    assert [condition["status"] for condition in status.conditions()] == ["True"]
    assert status.log.calls == []


async def test_a_final_condition_is_not_written_to_a_new_group_of_its_name(status: "StatusFixture") -> None:
    """In the status of a custom resource the API server ignores the UID, so the version says which group is meant."""
    refuse_first(status, version("8", uid="new"))
    status.report_scheduled(version("7"))
    await status.writer.drained()
    assert status.api.writes == []
    assert status.log.calls == []
