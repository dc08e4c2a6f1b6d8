"""What happens to a tree of which only a part is placed.

By default the scheduler keeps trying to complete the tree, and the condition ``Partial`` reports since when. To get the
room back instead, users annotate the root with the longest time for this state. After that time the operator deletes
the pods that hold nodes; their controllers create new pods, which wait as a whole gang.

The time counts from the condition, so the API server keeps it across restarts.
"""

import re

from msgspec import Struct

from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import GROUP

RELEASE_ANNOTATION = f"{GROUP}/release-partial-after"
"""On the root of a tree: a duration such as ``10m``, or ``default`` for the operator's own setting."""

PARTIAL = "Partial"
"""The condition of a root while some of its pods hold a node, but too few. It is absent otherwise."""

REASON_BELOW_MINIMUM = "BelowMinimum"
"""Fewer pods hold a node than the tree needs. The message says what happens next."""

_DURATION = re.compile(r"(?:(?P<hours>\d{1,6})h)?(?:(?P<minutes>\d{1,6})m)?(?:(?P<seconds>\d{1,6})s)?")


class PartialRelease(Struct, frozen=True):
    """The user's choice: seconds until the release (None for never), and what is wrong with the annotation."""

    after_seconds: float | None = None
    problem: str = ""


def read_partial_release(root: Group, default: float) -> PartialRelease:
    """Read the annotation of the root; ``default`` is the operator's setting."""
    text = root.metadata.annotations.get(RELEASE_ANNOTATION)
    if text is None:
        return PartialRelease()
    if text == "default":
        return PartialRelease(after_seconds=default)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return PartialRelease(
            problem=f"the annotation {RELEASE_ANNOTATION} is neither default nor a duration such as 10m, "
            "so nothing is released"
        )
    hours, minutes, seconds = (int(match[unit] or 0) for unit in ("hours", "minutes", "seconds"))
    return PartialRelease(after_seconds=hours * 3600.0 + minutes * 60.0 + seconds)
