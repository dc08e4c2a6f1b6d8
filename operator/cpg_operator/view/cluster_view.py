"""The cluster as the operator last saw it. Every change adds the trees that it concerns to the work queue.

Groups and Workloads come from Kopf and from the sweep, pods, nodes and priority classes from reflectors. What is known
does not depend on the order of arrival, and a state that is known already adds nothing to the queue.
"""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Raw

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.meta import ObjectMeta
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.forest import GroupKey, Tree, key_of
from cpg_api.scheduling.groupstore import GroupStore
from cpg_api.scheduling.health import Labels
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD
from cpg_client.resources import Resource
from cpg_client.stores import Added, Change, Deleted, Modified
from cpg_operator.view.differences import has_foreign_change, has_unexpected_status, has_user_change, is_newer
from cpg_operator.view.members import MemberIndex
from cpg_operator.view.owner_index import OwnerIndex
from cpg_operator.view.projections import slim_managed
from cpg_operator.view.tree_index import ManagedObject, TreeIndex
from cpg_operator.view.unread import UnreadNamespaces
from cpg_operator.work_queue import WorkQueue
from cpg_operator.writes import TreeKey, Write

T = TypeVar("T")


class ClusterView:
    """Everything the operator knows."""

    def __init__(
        self,
        kinds: Mapping[str, Mapping[type, Resource]],
        queue: WorkQueue[TreeKey],
        *,
        namespaces: Iterable[str] = (),
        knows_classes: bool = True,
    ) -> None:
        """Start without objects, for these namespaces or for all.

        ``knows_classes`` says whether priority classes may be listed at all: otherwise none counts as missing.
        """
        self.kinds = kinds
        self.knows_classes = knows_classes
        self.labels: dict[str, Labels] = {}
        """The labels of each node."""
        self._queue = queue
        parts = {Pod, *((flavour, kind) for flavour, served in kinds.items() for kind in served)}
        self._unread = UnreadNamespaces(namespaces, parts)
        self._trees = TreeIndex(kinds)
        self._members = MemberIndex()
        self._classes: dict[str, PriorityClass] = {}
        self._deleted: set[str] = set()
        self.owners = OwnerIndex(self._add_owner)

    @property
    def classes(self) -> PriorityClasses:
        """Return the priority classes."""
        return PriorityClasses(by_name=self._classes)

    def tree(self, key: TreeKey) -> Tree:
        """Return the tree that has this anchor now, or the one that its anchor has become part of."""
        return self._trees.tree(key)

    def current_key(self, key: TreeKey) -> TreeKey:
        """Return the key of the tree that has this anchor, or of the one that it has become part of."""
        return self._trees.current_key(key)

    def groups(self, flavour: str) -> GroupStore:
        """Return the groups of a flavour."""
        return self._trees.store(flavour)

    def workloads(self, flavour: str) -> Mapping[tuple[str, str], Workload]:
        """Return the Workloads of a flavour, by namespace and name."""
        return self._trees.workloads(flavour)

    def members(self, flavour: str, key: GroupKey) -> Iterable[Pod]:
        """Return the pods of a PodGroup, if they belong to the group of this flavour."""
        if self._trees.flavour_of(key) != flavour:
            return ()
        return self._members.pods((key.namespace, key.name))

    def count_trees(self) -> dict[str, int]:
        """Return the number of trees, by flavour."""
        return self._trees.count()

    def is_unread(self, namespace: str) -> bool:
        """Return whether a namespace has not been read completely yet."""
        return namespace in self._unread

    def mark_read(self, namespace: str | None, part: object) -> None:
        """Note that all pods of a namespace are known (``Pod``), or all objects of a flavour and kind."""
        if namespace is not None and self._unread.mark_read(namespace, part):
            self._add(self._trees.in_namespace(namespace))

    # Groups and Workloads.

    def by_uid(self, flavour: str, kind: type) -> dict[str, ManagedObject]:
        """Return all known objects of a kind."""
        return self._trees.by_uid(flavour, kind)

    def has_version(self, flavour: str, kind: type, metadata: Mapping[str, Any]) -> bool:
        """Return whether the view has exactly this state of an object, by its metadata as plain data."""
        known = self._trees.get(flavour, kind, metadata.get("namespace", ""), metadata.get("name", ""))
        return (
            known is not None
            and known.metadata.resource_version == metadata.get("resourceVersion")
            and known.metadata.uid == metadata.get("uid")
        )

    def put(self, flavour: str, found: ManagedObject) -> bool:
        """Take the state of a group or Workload, unless as new a one is known; return whether it was taken."""
        known = self._trees.get(flavour, type(found), found.metadata.namespace, found.metadata.name)
        if known is not None and not is_newer(known.metadata, found.metadata):
            return False
        if known is not None and known.metadata.uid != found.metadata.uid:
            self._deleted.add(known.metadata.uid)
        self._add(self._trees.put(flavour, found))
        if isinstance(found, Workload):
            self.owners.on_workload(found, exists=True)
        return True

    def take_answer(self, flavour: str, write: Write, answer: bytes) -> bool:
        """Take the answer to a write of ours; return whether there is more in it than was written.

        The write itself is no reason to reconcile again. An answer that does not fit its type is reported by the watch.
        """
        kind = self._kind(flavour, write.resource)
        if kind is None:
            return False
        found: ManagedObject | Rejected = parse_object(Raw(answer), cast("type[ManagedObject]", kind))
        if isinstance(found, Rejected):
            return False
        known = self._trees.get(flavour, kind, found.metadata.namespace, found.metadata.name)
        if known is None or known.metadata.uid != found.metadata.uid or not is_newer(known.metadata, found.metadata):
            return False  # the watch was faster than the answer
        return self._take_own_write(flavour, known, write, slim_managed(found))

    def _take_own_write(self, flavour: str, known: ManagedObject, write: Write, found: ManagedObject) -> bool:
        if isinstance(found, Workload):
            if not isinstance(known, Workload) or has_user_change(known, found):
                self._add(self._trees.put(flavour, found))
                return True
            self._trees.replace(flavour, found)
            return False
        self._trees.replace(flavour, found)
        if isinstance(known, Workload):
            return False
        if has_foreign_change(known, found):  # it came with the answer, and the watch will bring nothing newer
            self._add({self.current_key(TreeKey(flavour, key_of(found))), *self._trees.source(flavour, found)})
            return True
        return has_unexpected_status(known, write, found)

    def forget_missing(self, flavour: str, resource: Resource, target: ObjectMeta) -> None:
        """Forget an object that a write of ours has not found; without a UID, whatever has its name."""
        kind = self._kind(flavour, resource)
        known = self._trees.get(flavour, kind, target.namespace, target.name) if kind is not None else None
        if known is not None and target.uid in {"", known.metadata.uid}:
            self.remove(flavour, known)

    def _kind(self, flavour: str, resource: Resource) -> type | None:
        return next((kind for kind, one in self.kinds[flavour].items() if one == resource), None)

    def remove(self, flavour: str, found: ManagedObject) -> bool:
        """Forget a group or Workload, but not a later one of its name; return whether it was known."""
        self._deleted.add(found.metadata.uid)
        known = self._trees.get(flavour, type(found), found.metadata.namespace, found.metadata.name)
        if known is None or known.metadata.uid != found.metadata.uid:
            return False
        self._add(self._trees.remove(flavour, found))
        if isinstance(found, Workload):
            self.owners.on_workload(found, exists=False)
        return True

    def track_deletions(self) -> None:
        """Begin to remember the UIDs of deleted objects: a list that is requested now may still contain them."""
        self._deleted.clear()

    def was_deleted(self, uid: str) -> bool:
        """Return whether an object was deleted since ``track_deletions``."""
        return uid in self._deleted

    # Pods, nodes and priority classes.

    def on_pod(self, change: Change[Pod]) -> None:
        """Take a change of a pod."""
        for pod, is_new in ((_before(change), False), (_after(change), True)):
            group = membership(pod).group if pod is not None else None
            if pod is None or group is None or not self.kinds:
                continue
            place = (pod.metadata.namespace, group)
            if is_new:
                self._members.add(place, pod)
            else:
                self._members.remove(place, pod.metadata.uid)
            self._queue.add_paced(self._trees.tree_of_members(GroupKey(PodGroup.kind, *place)))

    def on_node(self, change: Change[Node]) -> None:
        """Take a node's labels: pods on it may be in another domain now, or in none."""
        old, new = _before(change), _after(change)
        if new is not None:
            self.labels[new.metadata.name] = new.metadata.labels
        elif old is not None:
            self.labels.pop(old.metadata.name, None)
        for name in {found.metadata.name for found in (old, new) if found is not None}:
            groups = self._members.groups_on(name)
            self._add({self._trees.tree_of_members(GroupKey(PodGroup.kind, *place)) for place in groups})

    def on_class(self, change: Change[PriorityClass]) -> None:
        """Take a priority class: it concerns trees without a priority, and those that name it."""
        old, new = _before(change), _after(change)
        if new is not None:
            self._classes[new.metadata.name] = new
        elif old is not None:
            self._classes.pop(old.metadata.name, None)
        names = {found.metadata.name for found in (old, new) if found is not None}
        self._add(self._trees.affected_by_classes(names))

    def _add_owner(self, owner: GroupKey) -> None:
        """Add an owner to the queue; its Workload is of our flavour where that is served."""
        if self.kinds:
            self._queue.add(TreeKey(CRD if CRD in self.kinds else next(iter(self.kinds)), owner))

    def _add(self, keys: Iterable[TreeKey]) -> None:
        for key in keys:
            self._queue.add(key)


def _before(change: Change[T]) -> T | None:
    return change.old if isinstance(change, Modified | Deleted) else None


def _after(change: Change[T]) -> T | None:
    return change.new if isinstance(change, Added | Modified) else None
