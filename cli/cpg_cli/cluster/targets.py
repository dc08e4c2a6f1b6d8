"""From what a user calls a tree to its unit: by one of its groups, its Workload, its owner, or one of its pods."""

from collections.abc import Iterator
from itertools import chain

from cpg_api.core.pod import Pod
from cpg_api.integrations.registry import OWNERS
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import key_of
from cpg_api.scheduling.podgroup import PodGroup
from cpg_cli.failures import CommandError, ExitCode, usage_error
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.debug.similar_names import similar_names
from cpg_scheduler.keys import UnitKey

POD, WORKLOAD = "pod", "workload"
KINDS = {
    "po": POD,
    "pods": POD,
    "pg": "podgroup",
    "podgroups": "podgroup",
    "cpg": "compositepodgroup",
    "compositepodgroups": "compositepodgroup",
    "workloads": WORKLOAD,
    "deploy": "deployment",
    "sts": "statefulset",
    "lws": "leaderworkerset",
    **{kind.plural: kind.kind.lower() for kind in OWNERS.values()},
}
"""The names of kinds that kubectl takes, beside the singular."""


class UnknownTargetError(CommandError):
    """The user has named a tree that is not there."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, code=ExitCode.USAGE, hint=hint)


def unit_of(cache: ClusterCache, namespace: str, target: str) -> UnitKey:
    """Return the unit that ``NAME`` or ``KIND/NAME`` means; raise if it is none, or several."""
    kind, slash, name = target.rpartition("/")
    wanted = KINDS.get(kind.lower(), kind.lower())
    found = {(one, unit): None for one, called, unit in _named(cache, namespace) if called == name}
    fitting = {unit: one for one, unit in found if not slash or one == wanted}
    units = {unit for unit, one in fitting.items() if one != POD} or set(fitting)
    if not units:
        raise _unknown(cache, namespace, target)
    if len(units) > 1:
        choices = ", ".join(sorted(f"{one}/{name} ({unit.key})" for one, unit in found if unit in units))
        raise usage_error(f"{target} is the name of several trees: {choices}", "choose one by KIND/NAME")
    return units.pop()


def _named(cache: ClusterCache, namespace: str) -> Iterator[tuple[str, str, UnitKey]]:
    """Yield everything of a namespace that a user can mean: its kind in small letters, its name and its unit."""
    for flavour, store in cache.stores.items():
        for group in store:
            if group.metadata.namespace == namespace:
                unit = UnitKey(flavour, store.anchor(key_of(group)))
                yield group.kind.lower(), group.metadata.name, unit
                yield unit.key.kind.lower(), unit.key.name, unit
                yield from ((kind, name, unit) for kind, name in _controllers(group.metadata))
        for workload in cache.workloads[flavour].values():
            if workload.metadata.namespace == namespace:
                for key in store.groups_of_workload(namespace, workload.metadata.name):
                    unit = UnitKey(flavour, store.anchor(key))
                    yield WORKLOAD, workload.metadata.name, unit
                    yield from ((kind, name, unit) for kind, name in _controllers(workload.metadata))
    for pod in cache.pods.values():
        if pod.metadata.namespace == namespace:
            unit = cache.unit_of(pod)
            yield POD, pod.metadata.name, unit
            yield unit.key.kind.lower(), unit.key.name, unit  # a group that is named and does not exist


def _controllers(meta: ObjectMeta) -> Iterator[tuple[str, str]]:
    return ((owner.kind.lower(), owner.name) for owner in meta.owner_references if owner.controller)


def _unknown(cache: ClusterCache, namespace: str, target: str) -> UnknownTargetError:
    names = dict.fromkeys(name for _, name, _ in _named(cache, namespace))
    similar = similar_names(target.rpartition("/")[2], names)
    if similar:
        return UnknownTargetError(
            f"{target} not found in namespace {namespace}", f"similar names: {', '.join(similar)}"
        )
    elsewhere = _namespaces_of(cache, target.rpartition("/")[2])
    hint = f"it is in namespace {elsewhere[0]}, choose --namespace" if elsewhere else "see `kubectl cpg tree`"
    return UnknownTargetError(f"{target} not found in namespace {namespace}", hint)


def _namespaces_of(cache: ClusterCache, name: str) -> list[str]:
    """Return the namespaces that have a group or pod of a name."""
    everything: Iterator[Pod | PodGroup | CompositePodGroup] = chain(cache.pods.values(), *cache.stores.values())
    return sorted({one.metadata.namespace for one in everything if one.metadata.name == name})
