"""The cluster as the operator last heard of it, and which trees each piece of news concerns.

Groups and Workloads come from Kopf and from the sweep, pods, nodes and priority classes from reflectors; each call
brings the view up to date and marks the trees that may have changed. What is known does not depend on the order of
arrival, and news that say nothing new mark nothing.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec import Raw

from cpg_api.conditions import find_condition, status_since
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod, PodSpec, PodStatus
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.meta import ObjectMeta
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.compositepodgroup import CompositePodGroupStatus
from cpg_api.scheduling.forest import Group, GroupKey, Tree, key_of
from cpg_api.scheduling.groupstore import GroupStore
from cpg_api.scheduling.health import HEALTHY, Labels
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.names import FINALIZER, INSTANTIATED, POD_GROUP_LABEL
from cpg_api.scheduling.partial_release import PARTIAL
from cpg_api.scheduling.podgroup import PodGroup, PodGroupStatus
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.workload import Workload
from cpg_client.resources import Resource
from cpg_client.stores import Added, Change, Deleted, Modified
from cpg_operator.workloads.plan import is_marked
from cpg_operator.writes import MANAGER, TreeKey, Verb, Write

Object: TypeAlias = Group | Workload
Status: TypeAlias = PodGroupStatus | CompositePodGroupStatus
T = TypeVar("T")


def slim(pod: Pod) -> Pod:
    """Keep of a pod what the operator reads; all else may change without our hearing of it."""
    meta, spec = pod.metadata, pod.spec
    named = {POD_GROUP_LABEL}
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            deletion_timestamp=meta.deletion_timestamp,
            labels={key: value for key, value in meta.labels.items() if key in named},
            annotations={key: value for key, value in meta.annotations.items() if key in named},
        ),
        spec=PodSpec(
            node_name=spec.node_name,
            scheduler_name=spec.scheduler_name,
            scheduling_group=spec.scheduling_group,
            priority=spec.priority,
            preemption_policy=spec.preemption_policy,
        ),
        status=PodStatus(phase=pod.status.phase),
    )


def labels_of(node: Node) -> Node:
    """Keep of a node its labels."""
    return Node(metadata=ObjectMeta(name=node.metadata.name, uid=node.metadata.uid, labels=node.metadata.labels))


class ClusterView:
    """Everything the operator knows."""

    def __init__(
        self,
        kinds: Mapping[str, Mapping[type, Resource]],
        mark: Callable[[TreeKey], None],
        paced: Callable[[TreeKey], None] | None = None,
        namespaces: Iterable[str] = (),
    ) -> None:
        """Start knowing nothing; ``mark`` is told which trees may have changed, ``paced`` those with news of pods.

        Without ``namespaces`` it is for all of them.
        """
        self.kinds = kinds
        parts = {Pod, *((flavour, kind) for flavour, there in kinds.items() for kind in there)}
        self._unread: dict[str, set[object]] = {namespace: set(parts) for namespace in namespaces}
        self.stores = {flavour: GroupStore(flavour) for flavour in kinds}
        self.workloads: dict[str, dict[tuple[str, str], Workload]] = {flavour: {} for flavour in kinds}
        self.labels: dict[str, Labels] = {}
        self.knows_classes = True
        """Whether priority classes can be read at all: who may not see them knows nothing of missing ones."""
        self.dropped: set[str] = set()
        """UIDs of what has gone since the last list was asked for, which may still have it."""
        self._members: dict[tuple[str, str], dict[str, Pod]] = {}
        self._hosted: dict[str, dict[str, tuple[str, str]]] = {}
        """The members on each node, by UID, each with its group."""
        self._classes: dict[str, PriorityClass] = {}
        self._mark = mark
        self._paced = paced or mark

    @property
    def classes(self) -> PriorityClasses:
        """Return the priority classes."""
        return PriorityClasses(by_name=self._classes)

    def tree(self, key: TreeKey) -> Tree:
        """Return the tree that has this anchor now, or the one that its anchor has become part of."""
        return self.stores[key.flavour].forest.tree_of(key.anchor)

    def anchored(self, key: TreeKey) -> TreeKey:
        """Return the key of the tree as it is now."""
        return TreeKey(key.flavour, self.stores[key.flavour].anchor(key.anchor))

    def members(self, flavour: str, key: GroupKey) -> Iterable[Pod]:
        """Return the pods of a PodGroup, if the group of that name is the one of this flavour."""
        if self._flavour(key) != flavour:
            return ()
        return self._members.get((key.namespace, key.name), {}).values()

    def trees(self) -> dict[str, int]:
        """Return how many trees there are, by flavour."""
        return {
            flavour: len({store.anchor(key_of(group)) for group in store}) for flavour, store in self.stores.items()
        }

    def is_unread(self, namespace: str) -> bool:
        """Tell whether a namespace has not been read as a whole yet: its trees would be judged wrongly."""
        return namespace in self._unread

    def read(self, namespace: str | None, part: object) -> None:
        """Note that all pods of a namespace are known, or all of a flavour and kind; the last wakes its trees."""
        missing = self._unread.get(namespace or "")
        if missing is None:
            return
        missing.discard(part)
        if not missing:
            del self._unread[namespace or ""]
            for flavour, store in self.stores.items():
                here = [key_of(group) for group in store if group.metadata.namespace == namespace]
                self._mark_all(flavour, {store.anchor(key) for key in here})
                made = (GroupKey(Workload.kind, *place) for place in self.workloads[flavour] if place[0] == namespace)
                self._mark_all(flavour, made)

    def known(self, flavour: str, kind: type) -> dict[str, Object]:
        """Return all objects of a kind, by UID."""
        if kind is Workload:
            return {one.metadata.uid: one for one in self.workloads[flavour].values()}
        return {one.metadata.uid: one for one in self.stores[flavour] if type(one) is kind}

    # What is heard of groups and Workloads.

    def knows(self, flavour: str, kind: type, metadata: Mapping[str, Any]) -> bool:
        """Tell whether this very state of an object, by its metadata as plain data, is the one that is known.

        A look into two mappings and nothing more, so that another thread may ask.
        """
        known = self._known(flavour, kind, metadata.get("namespace", ""), metadata.get("name", ""))
        return (
            known is not None
            and known.metadata.resource_version == metadata.get("resourceVersion")
            and known.metadata.uid == metadata.get("uid")
        )

    def _known(self, flavour: str, kind: type, namespace: str, name: str) -> Object | None:
        if kind is Workload:
            return self.workloads[flavour].get((namespace, name))
        return self.stores[flavour].forest.groups.get(GroupKey(kind.__name__, namespace, name))

    def put(self, flavour: str, found: Object, *, echo: Write | None = None) -> bool:
        """Take the state of a group or Workload, unless as new a one is known; tell whether it was news.

        What is the ``echo`` of a write of ours to a group marks nothing, and is no news where only the write is in it.
        """
        place = (found.metadata.namespace, found.metadata.name)
        known = self._known(flavour, type(found), *place)
        if known is not None and not _is_news(known.metadata, found.metadata):
            return False
        if echo is not None and (known is None or known.metadata.uid != found.metadata.uid):
            return False  # it has gone since: the answer was overtaken by the watch
        if known is not None and known.metadata.uid != found.metadata.uid:
            self.dropped.add(known.metadata.uid)
        if isinstance(found, Workload):
            self.workloads[flavour][place] = found
            is_more = echo is None or not isinstance(known, Workload) or _asked(known) != _asked(found)
            if is_more:
                self._mark_made_from(flavour, place)
            return is_more
        if echo is not None and not isinstance(known, Workload | None):
            self.stores[flavour].put(found)
            is_more = _without_ours(known) != _without_ours(found)
            if is_more:  # somebody else's change came with the answer, and the watch will bring nothing newer
                self._mark(TreeKey(flavour, self.stores[flavour].anchor(key_of(found))))
                self._mark_source(flavour, found)
            return is_more or _ours(found.status) != _ours(_expected(known, echo))
        key = key_of(found)
        side, was_anchor = self._flavour(key), self._is_anchor(flavour, key)
        for anchor in self.stores[flavour].put(found):
            # Who was not there was no tree either, unless others waited below; of that tree this may be the end.
            if anchor != key or was_anchor or self._is_anchor(flavour, anchor):
                self._mark(TreeKey(flavour, anchor))
        self._mark_sides(key, side)
        self._mark_source(flavour, found)
        return True

    def answered(self, flavour: str, write: Write, answer: bytes) -> bool:
        """Take what was answered to a write of ours; tell whether there is more in it than was written.

        What does not fit its type is told by the watch.
        """
        kind = self._kind(flavour, write.resource)
        if kind is None:
            return False
        found: Object | Rejected = parse_object(Raw(answer), cast("type[Object]", kind))
        return not isinstance(found, Rejected) and self.put(flavour, found, echo=write)

    def missed(self, flavour: str, resource: Resource, target: ObjectMeta) -> None:
        """Forget what a write of ours has not found."""
        kind = self._kind(flavour, resource)
        known = self._known(flavour, kind, target.namespace, target.name) if kind is not None else None
        if known is not None and known.metadata.uid == target.uid:
            self.drop(flavour, known)

    def _kind(self, flavour: str, resource: Resource) -> type | None:
        return next((kind for kind, one in self.kinds[flavour].items() if one == resource), None)

    def drop(self, flavour: str, found: Object) -> bool:
        """Forget a group or Workload, but not one that has taken its name since; tell whether it was known."""
        self.dropped.add(found.metadata.uid)
        if isinstance(found, Workload):
            place = (found.metadata.namespace, found.metadata.name)
            old = self.workloads[flavour].get(place)
            if old is None or old.metadata.uid != found.metadata.uid:
                return False
            del self.workloads[flavour][place]
            self._mark_made_from(flavour, place)
            return True
        key = key_of(found)
        known = self.stores[flavour].forest.groups.get(key)
        if known is None or known.metadata.uid != found.metadata.uid:
            return False
        side = self._flavour(key)
        before = self.stores[flavour].anchor(key)
        for anchor in self.stores[flavour].remove(key):
            if anchor == before or self._is_anchor(flavour, anchor):
                self._mark(TreeKey(flavour, anchor))
        self._mark_sides(key, side)
        self._mark_source(flavour, found)
        return True

    # What the reflectors bring.

    def on_pod(self, change: Change[Pod]) -> None:
        """Take news of a pod."""
        for pod, there in ((_before(change), False), (_after(change), True)):
            group = membership(pod).group if pod is not None else None
            if pod is None or group is None or not self.stores:
                continue
            place = (pod.metadata.namespace, group)
            if there:
                self._join(place, pod)
            else:
                self._leave(place, pod.metadata.uid)
            self._paced(self._root_at(GroupKey(PodGroup.kind, *place)))

    def _join(self, place: tuple[str, str], pod: Pod) -> None:
        self._members.setdefault(place, {})[pod.metadata.uid] = pod
        if pod.spec.node_name:
            self._hosted.setdefault(pod.spec.node_name, {})[pod.metadata.uid] = place

    def _leave(self, place: tuple[str, str], uid: str) -> None:
        pods = self._members.get(place, {})
        pod = pods.pop(uid, None)
        if not pods:
            self._members.pop(place, None)
        if pod is not None and (host := pod.spec.node_name):
            hosted = self._hosted[host]
            del hosted[uid]
            if not hosted:
                del self._hosted[host]

    def on_node(self, change: Change[Node]) -> None:
        """Take news of a node's labels: who has pods on it may be in another domain, or in none."""
        old, new = _before(change), _after(change)
        if new is not None:
            self.labels[new.metadata.name] = new.metadata.labels
        elif old is not None:
            self.labels.pop(old.metadata.name, None)
        for named in {found.metadata.name for found in (old, new) if found is not None}:
            for place in set(self._hosted.get(named, {}).values()):
                self._mark(self._root_at(GroupKey(PodGroup.kind, *place)))

    def on_class(self, change: Change[PriorityClass]) -> None:
        """Take news of a priority class: of trees that have no number of their own, or name it."""
        old, new = _before(change), _after(change)
        names = {found.metadata.name for found in (old, new) if found is not None}
        if new is not None:
            self._classes[new.metadata.name] = new
        elif old is not None:
            self._classes.pop(old.metadata.name, None)
        for flavour, store in self.stores.items():
            asking = (one for one in store if one.spec.priority is None or one.spec.priority_class_name in names)
            self._mark_all(flavour, {store.anchor(key_of(group)) for group in asking})

    def _mark_all(self, flavour: str, anchors: Iterable[GroupKey]) -> None:
        for anchor in anchors:
            self._mark(TreeKey(flavour, anchor))

    def _is_anchor(self, flavour: str, key: GroupKey) -> bool:
        """Tell whether a tree has this anchor: a group without a parent, or one that is not there and waited for."""
        store = self.stores[flavour]
        return store.anchor(key) == key and (key in store or key in store.forest.children)

    def _mark_sides(self, key: GroupKey, before: str) -> None:
        """Mark the trees between which pods have changed sides: of groups of one name, one flavour's has them."""
        now = self._flavour(key)
        for flavour in {before, now} if before != now else ():
            if key in self.stores[flavour]:
                self._mark(TreeKey(flavour, self.stores[flavour].anchor(key)))

    def _mark_source(self, flavour: str, group: Group) -> None:
        """Mark the Workload that a group names, if it is one that makes its groups anew."""
        if (ref := group.spec.workload_ref) is None:
            return
        place = (group.metadata.namespace, ref.workload_name)
        workload = self.workloads[flavour].get(place)
        if workload is not None and is_marked(workload):
            self._mark(TreeKey(flavour, GroupKey(Workload.kind, *place)))

    def _mark_made_from(self, flavour: str, workload: tuple[str, str]) -> None:
        """Mark a Workload, and the trees whose groups name it."""
        self._mark(TreeKey(flavour, GroupKey(Workload.kind, *workload)))
        store = self.stores[flavour]
        self._mark_all(flavour, {store.anchor(key) for key in store.groups_of_workload(*workload)})

    def _flavour(self, key: GroupKey) -> str:
        """Return the flavour that has a PodGroup; where several or none have it, the first that is served."""
        first, *others = self.stores
        if others and key not in self.stores[first]:
            return next((flavour for flavour in others if key in self.stores[flavour]), first)
        return first

    def _root_at(self, key: GroupKey) -> TreeKey:
        flavour = self._flavour(key)
        return TreeKey(flavour, self.stores[flavour].anchor(key))


def _is_news(old: ObjectMeta, new: ObjectMeta) -> bool:
    """Tell whether a state is another and not an older one: the sweep and Kopf do not wait for each other."""
    if old.uid != new.uid or not (old.resource_version.isdigit() and new.resource_version.isdigit()):
        return old != new
    return int(old.resource_version) < int(new.resource_version)


def _without_ours(group: Group) -> tuple[object, ...]:
    """Return what the steps look at in a group, but for what a look would leave as it is: health, counts, finalizer."""
    meta, conditions = group.metadata, group.status.conditions
    return (
        group.spec,
        (meta.uid, meta.deletion_timestamp, meta.labels, meta.annotations, meta.owner_references),
        [name for name in meta.finalizers if name != FINALIZER],
        [one for one in conditions or () if one.type not in {HEALTHY, PARTIAL}],
        status_since(conditions, PARTIAL),  # from which the time to release it counts
    )


def _asked(workload: Workload) -> tuple[object, ...]:
    """Return what the steps look at in a Workload, but for what we say of it ourselves."""
    meta = workload.metadata
    annotations = {name: value for name, value in meta.annotations.items() if name != INSTANTIATED}
    return workload.spec, meta.uid, meta.deletion_timestamp, annotations, meta.labels, meta.owner_references


def _ours(status: Status) -> tuple[object, ...]:
    """Return what a status says of health and counts, the operator's part of it."""
    groups = status.groups if isinstance(status, CompositePodGroupStatus) else None
    conditions = [find_condition(status.conditions, kind) for kind in (HEALTHY, PARTIAL)]
    return status.pods, groups, status.domain, conditions


def _expected(known: Group, write: Write) -> Status:
    """Return a status in which our part is as it should be after a write: each apply sends all of it."""
    if write.verb is Verb.APPLY_STATUS and write.manager == MANAGER:
        return msgspec.convert(msgspec.to_builtins(write.body), type(known.status))
    return known.status


def _before(change: Change[T]) -> T | None:
    return change.old if isinstance(change, Modified | Deleted) else None


def _after(change: Change[T]) -> T | None:
    return change.new if isinstance(change, Added | Modified) else None
