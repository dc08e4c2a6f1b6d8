"""What changes in the cluster between two passes of the scheduling loop.

Every index of the cache adds to one ``EventCollector``; the loop takes what it has gathered at the start of each pass.
"""

from collections.abc import Iterable

from msgspec import Struct, field

from cpg_scheduler.keys import UnitKey


class ClusterEvents(Struct):
    """The changes since events were last taken."""

    changed_units: set[UnitKey] = field(default_factory=set)
    """Units of which a spec, a pod, the Workload or the priority class has changed."""
    freed_nodes: set[str] = field(default_factory=set)
    """Nodes that may have more room than before."""
    changed_nodes: set[str] = field(default_factory=set)
    """Nodes that were added, removed or changed themselves."""
    any_change: bool = False
    """Whether anything that scheduling reads has changed, on any node, in storage or in a namespace."""
    devices_changed: bool = False
    """Whether devices may have become free, or have changed."""
    device_classes_changed: bool = False
    """Whether a device class has changed: other extended resources may be devices now."""
    removed_pods: set[str] = field(default_factory=set)
    """Pods, by UID, that no longer take room."""
    terminating_pods: set[str] = field(default_factory=set)
    """Pods, by UID, that have begun to terminate."""

    @property
    def size(self) -> int:
        """Return how many objects the events name."""
        return len(self.changed_units) + len(self.freed_nodes) + len(self.removed_pods)


class EventCollector:
    """Gathers cluster events until they are taken."""

    def __init__(self) -> None:
        """Start without events."""
        self.pending = ClusterEvents()

    def take(self) -> ClusterEvents:
        """Return what has happened since the last call."""
        events, self.pending = self.pending, ClusterEvents()
        return events

    def change_units(self, units: Iterable[UnitKey]) -> None:
        """Note that something of these units has changed."""
        self.pending.changed_units.update(units)

    def free_node(self, node: str) -> None:
        """Note that a node may have more room."""
        self.pending.freed_nodes.add(node)
        self.pending.any_change = True

    def change_node(self, node: str) -> None:
        """Note that a node itself has changed; any change of it may let a pod in."""
        self.pending.changed_nodes.add(node)
        self.free_node(node)

    def change_cluster(self) -> None:
        """Note a change that no node and no unit stands for."""
        self.pending.any_change = True

    def change_devices(self) -> None:
        """Note that devices may be free now, or have changed."""
        self.pending.devices_changed = True
        self.change_cluster()

    def change_device_class(self) -> None:
        """Note that a device class has changed."""
        self.pending.device_classes_changed = True
        self.change_devices()

    def remove_pod(self, uid: str) -> None:
        """Note that a pod no longer takes room."""
        self.pending.removed_pods.add(uid)

    def begin_termination(self, uid: str) -> None:
        """Note that the deletion of a pod has begun."""
        self.pending.terminating_pods.add(uid)
