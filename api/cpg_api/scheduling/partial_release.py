"""What is done about a tree of which only a part is placed (design: "never half a gang for long").

By default nothing is done but to say so: the scheduler goes on trying to complete the tree, and its condition
``Partial`` says since when. Who would rather have the room back than half a gang annotates the root with how long that
may last; then the pods that hold nodes are deleted, and whoever owns them makes new ones, which wait as a whole.

The time is that of the condition, so it is kept by the API server and outlives whoever looks at it.
"""

import re

from msgspec import Struct

from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import GROUP

RELEASE_ANNOTATION = f"{GROUP}/release-partial-after"
"""On the root of a tree: a duration such as ``10m``, or ``default`` for the operator's own."""

PARTIAL = "Partial"
"""The condition of a root while some of its pods hold a node, and too few; it is not there otherwise."""

REASON_BELOW_MINIMUM = "BelowMinimum"
"""Fewer pods hold a node than the tree needs; the message says what is done about it."""

_DURATION = re.compile(r"(?:(?P<hours>\d{1,6})h)?(?:(?P<minutes>\d{1,6})m)?(?:(?P<seconds>\d{1,6})s)?")


class PartialRelease(Struct, frozen=True):
    """What the user chose: seconds after which to release, None for never, and what is wrong with what they wrote."""

    after_seconds: float | None = None
    problem: str = ""


def read_partial_release(root: Group, default: float) -> PartialRelease:
    """Read the choice from the root's annotation."""
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
