"""The operator's own steps over objects in memory: owners get Workloads, and Workloads get their groups."""

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec.structs import replace

from cpg_api.core.priorityclass import PriorityClass
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, owner_kinds
from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.workload import Workload
from cpg_cli.analysis.changes import ObjectChange
from cpg_cli.analysis.controllers.objects import Plain, group_of
from cpg_cli.cluster.manifests import uid_of
from cpg_client.flavours import KINDS
from cpg_client.resources import Resource
from cpg_client.stores import Added, Synced
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.view.projections import slim_managed, slim_owner
from cpg_operator.view.tree_index import ManagedObject
from cpg_operator.work_queue import WorkQueue
from cpg_operator.workloads.adoption import adopt
from cpg_operator.workloads.instantiation import instantiate
from cpg_operator.writes import StepResult, TreeKey, Verb, Write

OWNERS = {(kind.group, kind.kind): kind for kind in owner_kinds(DEFAULT_INTEGRATIONS)}


class SimulatedOperator:
    """An operator, and the groups that it creates."""

    def __init__(self, flavours: Iterable[str], scheduler_name: str) -> None:
        """Start without objects."""
        self.notes: dict[str, None] = {}
        self._scheduler_names = frozenset({scheduler_name})
        self._queue: WorkQueue[TreeKey] = WorkQueue(lambda: 0.0, quiet=0.0, longest=0.0)
        self._kinds = {flavour: KINDS[flavour] for flavour in flavours}
        self._view = ClusterView(self._kinds, self._queue)
        for kind in OWNERS.values():
            resource = Resource(kind.group, kind.versions[0], kind.plural, kind.kind)
            self._view.owners.add_kind(kind, resource)
            self._view.owners.take(kind.kind, Synced())

    def put(self, flavour: str, found: ManagedObject) -> None:
        """Take a group or Workload."""
        self._view.put(flavour, slim_managed(found))

    def put_class(self, found: PriorityClass) -> None:
        """Take a priority class."""
        self._view.on_class(Added(found.metadata.name, found))

    def put_owner(self, plain: Plain) -> None:
        """Take an owner of pods, if it is of a kind that gets trees."""
        kind = OWNERS.get((group_of(plain), plain["kind"]))
        if kind is None:
            return
        found = convert_object(plain, kind.type)
        if not isinstance(found, Rejected):
            known = slim_owner(kind.reduce(found) if kind.reduce is not None else found)
            self._view.owners.take(kind.kind, Added(known.metadata.key, known))

    def reconcile(self, created: str) -> list[ObjectChange]:
        """Return the Workloads and groups that the operator creates."""
        found: list[ObjectChange] = []
        while (key := self._queue.pop()) is not None:
            for write in self._step(key).writes:
                if write.event is not None and write.event.warning:
                    self.notes[f"{key.anchor.kind} {key.anchor.name}: {write.event.note}"] = None
                if write.verb is Verb.CREATE:
                    found += self._create(key.flavour, write, created)
        return found

    def _step(self, key: TreeKey) -> StepResult:
        if key.anchor.kind == Workload.kind:
            return instantiate(self._view, key, timestamp="", failures={})
        if any(kind.kind == key.anchor.kind for kind in OWNERS.values()):
            return adopt(self._view, key, self._scheduler_names)
        return StepResult()

    def _create(self, flavour: str, write: Write, created: str) -> Iterator[ObjectChange]:
        kind = next(kind for kind, resource in self._kinds[flavour].items() if resource == write.resource)
        found: ManagedObject | Rejected = convert_object(dict(write.body), cast("type[ManagedObject]", kind))
        if isinstance(found, Rejected):
            self.notes[f"{kind.__name__} {found.name}: {found.problems[0]}"] = None
            return
        meta = found.metadata
        uid = uid_of(f"{write.resource.group}/{kind.__name__}", meta.namespace, meta.name)
        found = replace(found, metadata=replace(meta, uid=uid, creation_timestamp=created))
        self._view.put(flavour, slim_managed(found))
        yield ObjectChange(None, found, flavour)
