"""What the API shows of preemptions: pods that we nominated, and pods and groups with ``DisruptionTarget``.

The index makes it cheap to compare them regularly with what is active: most pods have neither.
"""

from collections.abc import Mapping

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group, GroupKey, key_of
from cpg_scheduler.cache.conditions import is_disrupted
from cpg_scheduler.cache.nominations import own_nomination


class PreemptionMarks:
    """The marked objects, as the watches show them."""

    def __init__(self) -> None:
        """Start without any."""
        self._nominated: dict[str, Pod] = {}
        self._disrupted: dict[str, Pod] = {}
        self._groups: dict[tuple[str, GroupKey], Group] = {}

    @property
    def nominated(self) -> Mapping[str, Pod]:
        """Return the pods that we have nominated to a node, by UID."""
        return self._nominated

    @property
    def disrupted(self) -> Mapping[str, Pod]:
        """Return the pods that say that they are evicted, by UID."""
        return self._disrupted

    @property
    def groups(self) -> Mapping[tuple[str, GroupKey], Group]:
        """Return the groups that say that they are evicted, by flavour and key."""
        return self._groups

    def replace_pod(self, old: Pod | None, new: Pod | None) -> None:
        """Put the new state of a pod in place of the old one."""
        if old is not None:
            self._nominated.pop(old.metadata.uid, None)
            self._disrupted.pop(old.metadata.uid, None)
        if new is not None and own_nomination(new):
            self._nominated[new.metadata.uid] = new
        if new is not None and is_disrupted(new):
            self._disrupted[new.metadata.uid] = new

    def replace_group(self, flavour: str, old: Group | None, new: Group | None) -> None:
        """Put the new state of a group in place of the old one."""
        if old is not None:
            self._groups.pop((flavour, key_of(old)), None)
        if new is not None and is_disrupted(new):
            self._groups[flavour, key_of(new)] = new
