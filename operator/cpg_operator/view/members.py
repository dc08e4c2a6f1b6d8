"""The pods of each PodGroup name, and the groups that have pods on each node."""

from collections.abc import Iterable

from cpg_api.core.pod import Pod

GroupName = tuple[str, str]
"""Namespace and name of a PodGroup, whatever its flavour."""


class MemberIndex:
    """Pods by the name of their group, and by node."""

    def __init__(self) -> None:
        """Start without pods."""
        self._pods: dict[GroupName, dict[str, Pod]] = {}
        self._groups_by_node: dict[str, dict[str, GroupName]] = {}
        """The group of each pod on a node, by the pod's UID."""

    def pods(self, group: GroupName) -> Iterable[Pod]:
        """Return the pods that name a group."""
        return self._pods.get(group, {}).values()

    def groups_on(self, node: str) -> set[GroupName]:
        """Return the groups that have a pod on a node."""
        return set(self._groups_by_node.get(node, {}).values())

    def add(self, group: GroupName, pod: Pod) -> None:
        """Add a pod that is not there."""
        self._pods.setdefault(group, {})[pod.metadata.uid] = pod
        if pod.spec.node_name:
            self._groups_by_node.setdefault(pod.spec.node_name, {})[pod.metadata.uid] = group

    def remove(self, group: GroupName, uid: str) -> None:
        """Remove a pod, if it is there."""
        pods = self._pods.get(group, {})
        pod = pods.pop(uid, None)
        if not pods:
            self._pods.pop(group, None)
        if pod is not None and (node := pod.spec.node_name):
            hosted = self._groups_by_node[node]
            del hosted[uid]
            if not hosted:
                del self._groups_by_node[node]
