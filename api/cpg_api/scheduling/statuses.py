"""Status beyond the native fields: counts, chosen domains, and the default condition."""

from typing import Annotated

from msgspec import Meta

from cpg_api.scheduling.names import REASON_PENDING
from cpg_api.schema import describe
from cpg_api.structs import ApiStruct


def describe_count(text: str) -> Meta:
    """Describe a field that is a count."""
    return describe(text, minimum=0, format="int32")


class PodCounts(ApiStruct, frozen=True):
    """Counts of pods."""

    desired: Annotated[int, describe_count("Pods that have not failed and are not being deleted.")] = 0
    scheduled: Annotated[int, describe_count("Of those, the ones that have a node.")] = 0
    running: Annotated[int, describe_count("Of those, the ones that run or have succeeded.")] = 0


class GroupCounts(ApiStruct, frozen=True):
    """Counts of child groups."""

    desired: Annotated[int, describe_count("Child groups that exist.")] = 0
    ready: Annotated[int, describe_count("Of those, the ones with their minimum met.")] = 0


class TopologyDomain(ApiStruct, frozen=True):
    """A value of a node label."""

    key: Annotated[str, describe("The node label.")] = ""
    value: Annotated[str, describe("Its value on all nodes of the domain.")] = ""


def pending_status(condition: str) -> dict[str, list[dict[str, str]]]:
    """Return the default status of a group before its first attempt, so that kubectl never shows a blank."""
    return {
        "conditions": [
            {
                "type": condition,
                "status": "Unknown",
                "reason": REASON_PENDING,
                "message": "No scheduling attempt yet.",
                "lastTransitionTime": "1970-01-01T00:00:00Z",
            }
        ]
    }
