"""A second opinion: what a scheduler would do that starts now and knows nothing but the API."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec
import structlog
from msgspec import Struct, field

from cpg_api.core.devices import DeviceClass, ResourceClaim, ResourceSlice
from cpg_api.core.disruption import PodDisruptionBudget
from cpg_api.core.namespace import Namespace
from cpg_api.core.volumes import CSINode, PersistentVolume, PersistentVolumeClaim, StorageClass
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import GroupKey, key_of
from cpg_api.scheduling.names import GROUP, NATIVE_GROUP, REASON_PLACEMENT_NOT_FOUND, REASON_UNSCHEDULABLE
from cpg_api.scheduling.podgroup import PodGroup
from cpg_client.flavours import CRD, NATIVE
from cpg_engine.cycle import decide
from cpg_engine.gangs.search import SearchOptions
from cpg_scheduler.attempt import attempt_of, status_updates
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.debug.dump import FORMAT, Dump, GroupsOfFlavour, restored
from cpg_scheduler.debug.replay import pending_units
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.keys import UnitKey
from cpg_scheduler.observability.metrics import SchedulerMetrics
from cpg_scheduler.preemption.machine import PreemptionMachine
from cpg_scheduler.settings import SchedulerSettings
from cpg_scheduler.status.resync import TreeStatus
from cpg_scheduler.status.updates import GroupStatusUpdate, PodStatusUpdate, StatusUpdate, inadmissible_updates
from cpg_scheduler.units import SchedulableUnit, build_unit
from cpg_simulation.checks.cluster import ObservedCluster

S = TypeVar("S", bound=Struct)
FLAVOURS = {GROUP: CRD, NATIVE_GROUP: NATIVE}


def agree(reason: str | None, expected: str) -> bool:
    """Return whether two reasons why there is no place are both true.

    What was not found in an incomplete search may be proven to be impossible with less room, which leads to no attempt.
    """
    return reason == expected or {reason, expected} == {REASON_UNSCHEDULABLE, REASON_PLACEMENT_NOT_FOUND}


class SecondOpinion(Struct):
    """What it would do: binds and evictions by unit, and what it would say about pods and groups that wait."""

    binds: dict[str, list[str]] = field(default_factory=dict)
    evictions: dict[str, list[str]] = field(default_factory=dict)
    pods: dict[str, PodStatusUpdate] = field(default_factory=dict)
    groups: dict[GroupKey, GroupStatusUpdate] = field(default_factory=dict)
    nominated: set[str] = field(default_factory=set)
    """Pods, by UID, for which it would go on to wait for victims."""

    def note(self, updates: Iterable[StatusUpdate]) -> None:
        """Note what it would say."""
        for update in updates:
            if isinstance(update, PodStatusUpdate):
                self.pods[update.pod.metadata.key] = update
            elif isinstance(update, GroupStatusUpdate):
                self.groups[key_of(update.group)] = update


def ask(cluster: ObservedCluster, now: float, refused: Iterable[str] = ()) -> SecondOpinion:
    """Return what a scheduler would do that starts now: each unit is decided about as if it were the only one.

    It evicts no pod that is ``refused``, by UID: the scheduler that runs may exclude it from its plans.
    """
    settings = SchedulerSettings(scheduler_name=cluster.scheduler_name)
    options, found = settings.options(), SecondOpinion()
    cache = _fresh_cache(cluster, options, now)
    machine = PreemptionMachine(
        cache,
        metrics=SchedulerMetrics(cluster.scheduler_name, lambda: 0.0),
        options=options,
        max_units_in_flight=0,
        clock=lambda: now,
        log=structlog.wrap_logger(structlog.ReturnLogger(), processors=[]),
    )
    for uid in refused:
        machine._planner.exclude(uid)
    machine.recover()  # nothing performs the instructions
    found.nominated = {uid for uid, _ in cache.reservations.items()}
    for key in pending_units(cache):
        unit = build_unit(cache, key)
        if isinstance(unit, Inadmissible):
            found.note(inadmissible_updates(unit, 1))
        else:
            _attempt(cache, machine, options, key, unit, found)
    trees = TreeStatus(cache, machine.awaits, options)
    for key in _units_of_groups(cache):
        found.note(trees.resync(key))  # nothing about trees with pending pods
    return found


def _units_of_groups(cache: ClusterCache) -> list[UnitKey]:
    groups = (UnitKey(flavour, group) for flavour, store in cache.stores.items() for group in store.forest.groups)
    return sorted(set(map(cache.current_unit, groups)))


def _attempt(
    cache: ClusterCache,
    machine: PreemptionMachine,
    options: SearchOptions,
    key: UnitKey,
    unit: SchedulableUnit,
    found: SecondOpinion,
) -> None:
    decision = decide(cache.snapshot, unit.unit, options, ignored=machine.ignored_by(key, unit))
    attempt = attempt_of(key, unit, decision, began=0.0, ended=0.0, number=1)
    if attempt.nodes:
        found.binds[str(key.key)] = [
            f"Pod {unit.pods[uid].metadata.key} to {node}" for uid, node in attempt.nodes.items()
        ]
        return
    preemption = machine.attempt(key, unit, decision, attempt.unplaced)
    evicted = preemption.plan.evictions if preemption.plan is not None else ()
    pods = [cache.pods[uid] for eviction in evicted for uid in eviction.unit.pods]
    if pods:
        found.evictions[str(key.key)] = [f"Pod {pod.metadata.key}" for pod in pods]
    found.note(status_updates(cache, attempt, preemption))


def _fresh_cache(cluster: ObservedCluster, options: SearchOptions, now: float) -> ClusterCache:
    def read(resource: str, kind: type[S]) -> list[S]:
        return [msgspec.convert(raw, kind) for raw in cluster.raw[resource].values()]

    groups = {
        FLAVOURS[api_group]: GroupsOfFlavour(
            pod_groups=[group for group in store if isinstance(group, PodGroup)],
            composite_pod_groups=[group for group in store if isinstance(group, CompositePodGroup)],
            workloads=list(cluster.workloads[api_group].values()),
        )
        for api_group, store in cluster.stores.items()
    }
    found = Dump(
        format=FORMAT,
        scheduler_name=cluster.scheduler_name,
        options=options,
        nodes=cluster.present_nodes(),
        namespaces=read("namespaces", Namespace),
        priority_classes=list(cluster.classes.values()),
        budgets=read("poddisruptionbudgets.policy", PodDisruptionBudget),
        storage_classes=read("storageclasses.storage.k8s.io", StorageClass),
        csi_nodes=read("csinodes.storage.k8s.io", CSINode),
        volumes=read("persistentvolumes", PersistentVolume),
        claims=read("persistentvolumeclaims", PersistentVolumeClaim),
        groups=groups,
        pods=[pod.present() for pod in cluster.pods.values()],
        assumed=(),
        nominations=(),
        queue=(),
        device_classes=read("deviceclasses.resource.k8s.io", DeviceClass),
        slices=read("resourceslices.resource.k8s.io", ResourceSlice),
        device_claims=read("resourceclaims.resource.k8s.io", ResourceClaim),
        taken=now,
    )
    return restored(found)
