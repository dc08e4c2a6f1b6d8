"""Writes are about one object, and not about its name."""

from collections.abc import Iterator

from cpg_api.conditions import FINAL_ONCE_TRUE
from cpg_simulation.checks.changes import Change
from cpg_simulation.checks.values import Finding, Object, Rule


def _known_objects(change: Change) -> Iterator[Finding]:
    """Yield that a write has hit an object that its process did not know when it sent the request."""
    write = change.write
    if not change.role or write.old is None or change.is_outdated:
        return
    created = change.pod.created_at if change.pod is not None else _creation_of_placed_group(change)
    if created > change.knowledge.seen(change.process, write.resource, change.sent):
        name = f"{write.resource} {write.namespace}/{write.name}"
        what = f"{change.process} has sent a {write.verb} of {name} at {change.sent:.3f} s"
        yield Finding((name,), f"{what}, before it was shown that the present object of this name was created")


def _creation_of_placed_group(change: Change) -> int:
    """Return the revision that created the group of which this write says that it was placed; 0 for other writes."""
    write = change.write
    is_news = write.new is not None and _is_placed(write.new) and not _is_placed(write.old or {})
    return change.group_created if is_news else 0


def _is_placed(group: Object) -> bool:
    conditions = group.get("status", {}).get("conditions") or ()
    return any(one["type"] in FINAL_ONCE_TRUE and one["status"] == "True" for one in conditions)


KNOWN_OBJECTS = Rule(
    name="Writes hit what they are about",
    promise=(
        "No write to a pod, and no final condition of a group, hits an object that was created after the request was"
        " sent, or that its sender had not been shown."
    ),
    check=_known_objects,
)
