"""What it proves that a search has found nothing."""

from collections.abc import Iterable

from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.gangs.bounds import exclusive_keys
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.placement import depends_on_other_pods
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Finding, Limitation


def depends_on_others(snapshot: Snapshot, needs: Needs, classes: Iterable[int]) -> bool:
    """Return whether it matters to pods of any of these classes where other pods are."""
    return any(depends_on_other_pods(snapshot, needs.classes[found]) for found in classes)


def is_exhaustive(snapshot: Snapshot, needs: Needs) -> bool:
    """Return whether a search that has found nothing has proven that there is nothing.

    That holds where all pods are alike and require the same labels, because then it does not matter which pod takes
    which node. If it matters to the pods where other pods are, it also has to be irrelevant which of the nodes that
    pass is taken: each pod excludes its node or its domain of one label, and no other node.
    """
    if not needs.interchangeable or depends_on_choice_of_devices(snapshot, needs):
        return False
    if not depends_on_others(snapshot, needs, needs.classes):
        return True
    is_in_domain = any(node.required for node in needs.unit.nodes)
    return not is_in_domain and all(_excludes_one_domain(snapshot, found) for found in needs.classes.values())


def depends_on_choice_of_devices(snapshot: Snapshot, needs: Needs) -> bool:
    """Return whether the devices that pods are given may leave less room for others than different ones would."""
    allocator = snapshot.ledger.device_allocator
    rooms = (allocator.room(found.devices) for found in needs.classes.values() if found.devices is not None)
    return any(room is not None and not room.is_exact() for room in rooms)


def _excludes_one_domain(snapshot: Snapshot, pod_class: PodClass) -> bool:
    """Return whether a pod excludes others of its class from its node, or its domain of one label, and from no more."""
    relations = pod_class.relations
    must_spread = any(constraint.hard for constraint in relations.spread)
    if must_spread or relations.terms.required or pod_class.volumes is not None or pod_class.devices is not None:
        return False
    return len(exclusive_keys(pod_class, snapshot.ledger)) <= 1


def limitations(snapshot: Snapshot, needs: Needs, finding: Finding) -> tuple[Limitation, ...]:
    """Return why a finding proves nothing; empty for a finding that does."""
    if finding not in {Finding.NOT_FOUND, Finding.OUT_OF_BUDGET}:
        return ()
    found = {
        Limitation.SHAPES: len(needs.classes) > 1,
        Limitation.TOPOLOGY: not needs.requires_same_keys,
        Limitation.OTHER_PODS: depends_on_others(snapshot, needs, needs.classes),
        Limitation.DEVICES: depends_on_choice_of_devices(snapshot, needs),
        Limitation.BUDGET: finding is Finding.OUT_OF_BUDGET,
    }
    return tuple(limitation for limitation, holds in found.items() if holds)
