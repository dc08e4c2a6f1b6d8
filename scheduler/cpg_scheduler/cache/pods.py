"""The pods of the cluster, by UID, by PodGroup and by name."""

from collections.abc import Collection, Iterable

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.membership import NATIVE_PATH, group_names, membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.flavours import CRD, KINDS, NATIVE


class PodCache:
    """All pods, those of other schedulers included."""

    def __init__(self, *, groups_served: bool) -> None:
        """Start without pods; where the API server serves no groups, every pod is a single pod."""
        self.by_uid: dict[str, Pod] = {}
        self._groups_served = groups_served
        self._members: dict[GroupKey, dict[str, Pod]] = {}
        self._single_pods: dict[tuple[str, str], Pod] = {}

    def replace(self, old: Pod | None, new: Pod | None) -> None:
        """Put the new state of a pod in place of the old one."""
        if old is not None:
            self._remove(old)
        if new is not None:
            self._add(new)

    def group_of(self, pod: Pod) -> GroupKey | None:
        """Return the PodGroup that a pod names, or None for a single pod."""
        group = membership(pod).group
        if group is None or not self._groups_served:
            return None
        return GroupKey(PodGroup.kind, pod.metadata.namespace, group)

    def members(self, group: GroupKey) -> Iterable[Pod]:
        """Return the pods that name a PodGroup."""
        return self._members.get(group, {}).values()

    def single_pod(self, namespace: str, name: str) -> Pod | None:
        """Return the pod of that name, if it is in no group."""
        return self._single_pods.get((namespace, name))

    def _add(self, pod: Pod) -> None:
        self.by_uid[pod.metadata.uid] = pod
        group = self.group_of(pod)
        if group is None:
            self._single_pods[pod.metadata.namespace, pod.metadata.name] = pod
        else:
            self._members.setdefault(group, {})[pod.metadata.uid] = pod

    def _remove(self, pod: Pod) -> None:
        uid, group = pod.metadata.uid, self.group_of(pod)
        del self.by_uid[uid]
        if group is None:
            name = (pod.metadata.namespace, pod.metadata.name)
            if self._single_pods[name].metadata.uid == uid:  # else another pod has taken the name
                del self._single_pods[name]
            return
        members = self._members[group]
        del members[uid]
        if not members:
            del self._members[group]


def unread_api(pod: Pod, flavours: Collection[str]) -> str:
    """Return the API group that the group of a pod may have and that is not among the read flavours; else nothing.

    The native field names a native group first, a label or annotation one of ours; each may name the other, too.
    """
    if membership(pod).group is None:
        return ""
    named = (NATIVE if path == NATIVE_PATH else CRD for path, _ in group_names(pod))
    unread = next((flavour for flavour in named if flavour not in flavours), None)
    return KINDS[unread][PodGroup].group if unread is not None else ""
