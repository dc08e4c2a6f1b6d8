"""A view without a cluster: tests put groups and pods into it, and read which trees are to be reconciled."""

from collections.abc import Iterable

from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodStatus
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD, KINDS
from cpg_client.stores import Added, Deleted
from cpg_engine.testing.builders import composite, pod, pod_group
from cpg_operator.context import ReconcileContext, build_context
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import TreeKey

NOW = 1_000_000.0
TIMESTAMP = "1970-01-12T13:46:40Z"


class RecordingQueue(WorkQueue[TreeKey]):
    """Records each addition."""

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(lambda: 0.0, quiet=0.0, longest=0.0)
        self.added: list[TreeKey] = []
        self.paced: list[TreeKey] = []

    def add(self, key: TreeKey) -> None:
        """Record an addition."""
        self.added.append(key)

    def add_paced(self, key: TreeKey) -> None:
        """Record a paced addition, which counts as an addition."""
        self.paced.append(key)
        self.added.append(key)


class ViewFixture:
    """A view, and short methods to change it."""

    def __init__(self, *namespaces: str, knows_classes: bool = True) -> None:
        """Start empty, with both flavours served, in these namespaces or in all."""
        self.queue = RecordingQueue()
        self.view = ClusterView(KINDS, self.queue, namespaces=namespaces, knows_classes=knows_classes)

    def put(self, *groups: Group | Workload, flavour: str = CRD) -> None:
        """Put groups and Workloads into the view."""
        for group in groups:
            self.view.put(flavour, group)

    def add_pods(self, *pods: Pod) -> None:
        """Put pods into the view."""
        for one in pods:
            self.view.on_pod(Added(one.metadata.key, one))

    def remove_pods(self, *pods: Pod) -> None:
        """Remove pods from the view."""
        for one in pods:
            self.view.on_pod(Deleted(one.metadata.key, one))

    def mark_read(self, namespace: str = "default") -> None:
        """Have everything in a namespace read."""
        self.view.mark_read(namespace, Pod)
        for flavour, kinds in KINDS.items():
            for kind in kinds:
                self.view.mark_read(namespace, (flavour, kind))

    def context(self, name: str = "root", *, kind: str = "CompositePodGroup", flavour: str = CRD) -> ReconcileContext:
        """Return the context of a tree."""
        key = TreeKey(flavour, GroupKey(kind, "default", name))
        return build_context(
            self.view,
            key,
            now=NOW,
            timestamp=TIMESTAMP,
            seconds_since=lambda since: NOW - since,
            partial_after=600.0,
            scheduler_names=frozenset({SCHEDULER_NAME}),
        )

    def take_queued(self) -> set[str]:
        """Return the names of the anchors added since the last call, without Workloads."""
        found = {key.anchor.name for key in self.queue.added if key.anchor.kind != Workload.kind}
        self.queue.added.clear()
        return found


def small_tree() -> list[Group]:
    """Return a root over two gangs of two."""
    return [
        composite("root", gang=2),
        pod_group("a", gang=2, parent="root"),
        pod_group("b", gang=2, parent="root"),
    ]


def members(group: str, count: int, *, node: str = "n1", phase: str = "Running") -> Iterable[Pod]:
    """Yield so many pods of a group."""
    for number in range(count):
        found = pod(f"{group}-{number}", group=group, node_name=node)
        yield replace(found, status=PodStatus(phase=phase))
