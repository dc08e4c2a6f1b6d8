"""What would happen if objects were submitted to a cluster: controllers, operator and scheduler take turns."""

import datetime as dt
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.core.priorityclass import PriorityClass
from cpg_api.core.volumes import PersistentVolumeClaim, StorageClass
from cpg_api.integrations.registry import DEFAULT_INTEGRATIONS, Integrations
from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.forest import key_of
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.workload import Workload
from cpg_cli.analysis.changes import ObjectChange
from cpg_cli.analysis.controllers.objects import POD, Plain
from cpg_cli.analysis.simulated_devices import TEMPLATE, missing_templates, templates_of, with_claims
from cpg_cli.analysis.simulated_operator import OWNERS, SimulatedOperator
from cpg_cli.analysis.simulated_scheduler import SimulatedScheduler
from cpg_cli.analysis.simulated_storage import new_claim
from cpg_cli.analysis.workload_controllers import CLAIM, WorkloadControllers
from cpg_cli.cluster.admission import PodRefusedError, admit_pod, priority_classes
from cpg_cli.cluster.manifests import Manifests
from cpg_cli.failures import usage_error
from cpg_operator.view.tree_index import ManagedObject
from cpg_scheduler.debug.dump import Dump, GroupsOfFlavour
from cpg_scheduler.keys import UnitKey

MAX_ROUNDS = 100
"""Controllers create pods again and again: those of an ordered StatefulSet come one by one."""


class SimulatedCluster(Struct, frozen=True):
    """A cluster after a simulation."""

    scheduler: SimulatedScheduler
    pods: tuple[Pod, ...]
    """The pods that were submitted, and those that controllers have created for them, without nodes."""
    groups: tuple[ObjectChange, ...]
    """The groups and Workloads that were submitted, and those that the operator has created."""
    notes: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()

    def units(self) -> list[UnitKey]:
        """Return the trees and single pods that were submitted, as far as they are ours to schedule."""
        cache = self.scheduler.cache
        found: dict[UnitKey, None] = {}
        for change in self.groups:
            if not isinstance(change.after, Workload):
                found[UnitKey(change.flavour, cache.stores[change.flavour].anchor(key_of(change.after)))] = None
        for pod in self.pods:
            if pod.metadata.uid in cache.pods and pod.spec.scheduler_name == cache.scheduler_name:
                found[cache.unit_of(pod)] = None
        return list(found)


def timestamp(seconds: float) -> str:
    """Return a time of day as the API server writes it."""
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def simulate(base: Dump, submitted: Manifests, *, now: float) -> SimulatedCluster:
    """Submit objects to the cluster of a dump, and schedule until nothing changes any more.

    ``now`` is the time of the submission. Controllers and operator create their objects some seconds later.
    """
    return _Simulation(base, submitted, now).run()


class _Simulation:
    def __init__(self, base: Dump, submitted: Manifests, now: float) -> None:
        _check_names(base, submitted)
        self._base = base
        self._began = now
        self._submitted = submitted
        objects = submitted.objects
        classes = {one.metadata.name: one for one in (*base.priority_classes, *objects.by_kind[PriorityClass])}
        self._classes: PriorityClasses = priority_classes(classes.values())
        self._storage_classes = [*base.storage_classes, *objects.by_kind[StorageClass]]
        self._templates = templates_of(submitted.others)
        self._scheduler = SimulatedScheduler(base)
        self._integrations = Integrations([base.scheduler_name], DEFAULT_INTEGRATIONS)
        flavours = base.groups or objects.groups
        self._operator = SimulatedOperator(flavours, base.scheduler_name)
        plain = (one.plain for one in submitted.others if one.document.kind != TEMPLATE)
        self._controllers = WorkloadControllers(plain, self._classes, self._labels_of_node)
        self._pods: list[Pod] = []
        self._groups: list[ObjectChange] = []
        self._notes: dict[str, None] = {}

    def run(self) -> SimulatedCluster:
        """Let the cluster settle, submit, and let it settle again."""
        self._scheduler.settle()
        self._inform_operator()
        changes = list(self._first_changes())
        for number in range(1, MAX_ROUNDS):
            changes += self._created(timestamp(self._began + number))
            if not changes:
                break
            self._scheduler.put(*changes)
            self._scheduler.settle()
            changes = []
        else:
            self._notes[f"pods that are created after {MAX_ROUNDS} rounds are not simulated"] = None
        notes = (*self._notes, *self._controllers.notes, *self._operator.notes)
        ignored = tuple(self._controllers.ignored)
        return SimulatedCluster(self._scheduler, tuple(self._pods), tuple(self._groups), notes, ignored)

    def _inform_operator(self) -> None:
        """Let the operator see what exists."""
        for one in self._classes.by_name.values():
            self._operator.put_class(one)
        for flavour, known in self._base.groups.items():
            for managed in _managed(known):
                self._operator.put(flavour, managed)

    def _first_changes(self) -> Iterator[ObjectChange]:
        """Yield the creations of what the files have."""
        objects = self._submitted.objects
        for kind, found in objects.by_kind.items():
            if kind is PersistentVolumeClaim:
                for claim in found:
                    yield from new_claim(claim, self._storage_classes)
            elif kind is not Pod:
                yield from (ObjectChange(None, one) for one in found)
        for flavour, kinds in objects.groups.items():
            for managed in (one for found in kinds.values() for one in found):
                if flavour not in self._base.groups:
                    raise usage_error(f"the cluster serves no {managed.kind} of the flavour {flavour}")
                self._operator.put(flavour, managed)
                self._groups.append(change := ObjectChange(None, managed, flavour))
                yield change
        for pod in objects.by_kind[Pod]:
            yield from self._admitted(pod, self._submitted.places[pod.metadata.uid])

    def _created(self, created: str) -> list[ObjectChange]:
        """Return what controllers and operator create now, and the pods that have succeeded."""
        objects = self._controllers.reconcile()
        changes = [one for plain in objects if plain["kind"] in {POD, CLAIM} for one in self._converted(plain, created)]
        for plain in self._controllers.objects():
            self._operator.put_owner(plain)
        groups = self._operator.reconcile(created)
        self._groups += groups
        pods = self._scheduler.cache.pods
        while self._controllers.completed:
            pod = pods.get(self._controllers.completed.pop())
            if pod is not None:
                changes.append(ObjectChange(pod, replace(pod, status=replace(pod.status, phase="Succeeded"))))
        return [*groups, *changes]

    def _converted(self, plain: Plain, created: str) -> Iterator[ObjectChange]:
        meta = {**plain["metadata"], "creationTimestamp": created}
        found: Any = convert_object({**plain, "metadata": meta}, Pod if plain["kind"] == POD else PersistentVolumeClaim)
        if isinstance(found, Rejected):
            raise usage_error(f"{plain['kind']} {found.name}: {found.problems[0]}", "correct its template")
        if isinstance(found, Pod):
            yield from self._admitted(found, "its template")
        else:
            yield from new_claim(found, self._storage_classes)

    def _admitted(self, pod: Pod, place: str) -> Iterator[ObjectChange]:
        """Yield the creation of a pod, as it was admitted, and of the claims that are made for it."""
        try:
            admitted = self._integrations.with_group(admit_pod(pod, self._classes))
        except PodRefusedError as error:
            raise usage_error(f"{place}: Pod {pod.metadata.name}: {error}", "add the class to the files") from error
        if admitted.spec.scheduler_name != self._base.scheduler_name:
            name, ours = admitted.spec.scheduler_name, self._base.scheduler_name
            self._notes[f"pods with schedulerName {name} are not simulated: kube-cpg schedules those of {ours}"] = None
        admitted, claims = with_claims(admitted, self._templates)
        for name in missing_templates(admitted, self._templates):
            self._notes[f"claims of ResourceClaimTemplate {name} are not made: it is not in the files"] = None
        self._pods.append(admitted)
        yield from (ObjectChange(None, claim) for claim in claims)
        yield ObjectChange(None, admitted)

    def _labels_of_node(self, uid: str) -> Mapping[str, str] | None:
        """Return the labels of the node of a pod, or None if it has none."""
        pod = self._scheduler.cache.pods.get(uid)
        return self._scheduler.labels_of(pod.spec.node_name) if pod is not None else None


def _managed(groups: GroupsOfFlavour) -> Iterator[ManagedObject]:
    yield from groups.workloads
    yield from groups.composite_pod_groups
    yield from groups.pod_groups


def _check_names(base: Dump, submitted: Manifests) -> None:
    """Raise if a group or pod of the files exists in the cluster, or the tree of an owner."""
    known = {(Pod.__name__, pod.metadata.key) for pod in base.pods}
    known |= {(one.kind, one.metadata.key) for groups in base.groups.values() for one in _managed(groups)}
    objects = submitted.objects
    groups = (one for kinds in objects.groups.values() for found in kinds.values() for one in found)
    names = [((type(one).__name__, one.metadata.key), one.metadata.uid) for one in (*objects.by_kind[Pod], *groups)]
    for other in submitted.others:
        meta, kind = other.plain["metadata"], OWNERS.get((other.document.group, other.document.kind))
        if kind is not None:
            names.append(((Workload.kind, f"{meta['namespace']}/{kind.prefix}.{meta['name']}"), meta["uid"]))
    for name, uid in names:
        if name in known:
            message = f"{submitted.places[uid]}: {' '.join(name)} exists in the cluster already"
            hint = "simulate takes new objects: choose another --namespace, or see `kubectl cpg what-if`"
            raise usage_error(message, hint)
