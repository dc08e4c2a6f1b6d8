"""A write as the rules get it: with the cluster after it, and what the process that wrote it knew."""

import math
from dataclasses import dataclass
from functools import cached_property

from cpg_api.scheduling.forest import GroupKey
from cpg_simulation.checks.cluster import GROUP_KINDS, ObservedCluster, TrackedPod, is_deleting
from cpg_simulation.checks.knowledge import Knowledge, View
from cpg_simulation.checks.leases import Leases
from cpg_simulation.checks.values import RecordedWrite

SCHEDULER = "scheduler"
OPERATOR = "operator"


def role_of(user: str) -> str:
    """Return what a user is: one of our two programs by its name, or nothing."""
    role = user.partition("-")[0]
    return role if role in {SCHEDULER, OPERATOR} else ""


@dataclass(frozen=True)
class Change:
    """A write with the cluster after it; ``pod`` is the one that it is about, also if it is gone now."""

    write: RecordedWrite
    cluster: ObservedCluster
    leases: Leases
    role: str
    process: str
    """The process that wrote, and which of its starts it was."""
    sent: float
    """When the request was sent."""
    knowledge: Knowledge
    pod: TrackedPod | None = None
    disturbed_until: float = -math.inf
    """Until when something is or was faulty."""

    @cached_property
    def view(self) -> View:
        """What the process knew when it decided; for a bind, before the first request of its batch."""
        return self.knowledge.view(self.process, self._subject, self.sent)

    @property
    def first_sent(self) -> float:
        """When the process sent this request first: a bind without an answer is repeated, whatever happens."""
        return self.knowledge.first_sent(self.process, self._subject, self.sent)

    @property
    def group_created(self) -> int:
        """The revision that created the group that was written; 0 for another object."""
        plural, _, api_group = self.write.resource.partition(".")
        if plural not in GROUP_KINDS:
            return 0
        key = GroupKey(GROUP_KINDS[plural].kind, self.write.namespace, self.write.name)
        return self.cluster.created.get((api_group, key), 0)

    @property
    def _subject(self) -> str:
        """The pod, if this write is a bind."""
        return f"{self.write.namespace}/{self.write.name}" if self.write.subresource == "binding" else ""

    @property
    def is_outdated(self) -> bool:
        """Whether the process ran before etcd was restored, and may not have noticed yet when it sent the write."""
        return self.sent <= self.knowledge.outdated.get(self.process, -math.inf)

    @property
    def is_creation(self) -> bool:
        """Whether the object is new."""
        return self.write.old is None

    @property
    def bound(self) -> TrackedPod | None:
        """The pod, if this write is a bind by our scheduler."""
        old, new = self.write.old, self.write.new
        if self.pod is None or self.role != SCHEDULER or old is None or new is None:
            return None
        return self.pod if not old["spec"].get("nodeName") and new["spec"].get("nodeName") else None

    @property
    def evicted(self) -> TrackedPod | None:
        """The pod, if this write begins its deletion and is our scheduler's."""
        old, new = self.write.old, self.write.new
        if self.pod is None or self.role != SCHEDULER or old is None or is_deleting(old):
            return None
        return self.pod if new is None or is_deleting(new) else None
