"""A view without a cluster: groups and pods are put into it, and trees that become dirty are noted."""

from collections.abc import Iterable

from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodStatus
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD, KINDS
from cpg_client.stores import Added, Deleted
from cpg_engine.testing.builders import composite, pod, pod_group
from cpg_operator.context import ReconcileContext, build_context
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.writes import TreeKey

NOW = 1_000_000.0
STAMP = "1970-01-12T13:46:40Z"


class ViewFixture:
    """A view, and short words for what happens in it."""

    def __init__(self, *namespaces: str) -> None:
        """Start empty, with both flavours served, in these namespaces or in all."""
        self.marked: list[TreeKey] = []
        self.view = ClusterView(KINDS, self.marked.append, namespaces=namespaces)

    def put(self, *groups: Group, flavour: str = CRD) -> None:
        """Have groups heard of."""
        for group in groups:
            self.view.put(flavour, group)

    def pods(self, *pods: Pod) -> None:
        """Have pods heard of."""
        for one in pods:
            self.view.on_pod(Added(one.metadata.key, one))

    def gone(self, *pods: Pod) -> None:
        """Have pods gone."""
        for one in pods:
            self.view.on_pod(Deleted(one.metadata.key, one))

    def read(self, namespace: str = "default") -> None:
        """Have all that is in a namespace known."""
        self.view.read(namespace, Pod)
        for flavour, kinds in KINDS.items():
            for kind in kinds:
                self.view.read(namespace, (flavour, kind))

    def scene(self, name: str = "root", *, kind: str = "CompositePodGroup", flavour: str = CRD) -> ReconcileContext:
        """Set the scene of a tree."""
        key = TreeKey(flavour, GroupKey(kind, "default", name))
        return build_context(self.view, key, now=NOW, stamp=STAMP, partial_after=600.0)

    def taken(self) -> set[str]:
        """Return the names of the anchors marked since this was last asked, without those of Workloads."""
        found, self.marked[:] = {key.anchor.name for key in self.marked if key.anchor.kind != Workload.kind}, []
        return found


def small_tree() -> list[Group]:
    """Return a root over two gangs of two."""
    return [
        composite("root", gang=2),
        pod_group("a", gang=2, parent="root"),
        pod_group("b", gang=2, parent="root"),
    ]


def members(group: str, count: int, *, node: str = "n1", phase: str = "Running") -> Iterable[Pod]:
    """Return so many pods of a group."""
    for number in range(count):
        found = pod(f"{group}-{number}", group=group, node_name=node)
        yield replace(found, status=PodStatus(phase=phase))
