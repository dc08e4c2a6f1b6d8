"""One scheduling cycle: a unit in, a decision out.

1. Ignore the reservations that the unit may take.
2. Search for a placement: the minimums first, then all other pods.
3. Read off the binds, with their allocations, the room for pods that are expected, and the report of every group.
   Where no pod is bound, find out whether devices that claims of the unit have already are in its way.
4. Roll everything back. Assuming and performing the decision is up to the scheduler.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PlacedPod
from cpg_engine.decisions import Allocation, Bind, Decision, DeviceAllocation, ReservedRoom
from cpg_engine.errors import ContradictionError
from cpg_engine.gangs.domain_choice import DomainChoice
from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.next_step import next_step
from cpg_engine.gangs.search import PlacementSearch, SearchOptions
from cpg_engine.gangs.unit import PendingPod, Unit
from cpg_engine.snapshot import Snapshot
from cpg_engine.verdicts import Contradiction, Explanation, Finding


def decide(snapshot: Snapshot, unit: Unit, options: SearchOptions, *, ignored: Iterable[str] = ()) -> Decision:
    """Decide where the pods of a unit go; the ledger is unchanged afterwards.

    The ledger holds nominated pods as if they ran. ``ignored`` are the UIDs of nominated pods that give way to the
    unit: pods of its own tree, and of trees that it outranks.
    """
    ledger = snapshot.ledger
    mark = ledger.mark()
    try:
        ledger.ignore(ignored)
        search = PlacementSearch(snapshot, unit, options)
        finding, contradiction = _run(search)
        assignments = tuple(search.assignments()) if finding is Finding.PLACED else ()
        binds = tuple(_binds(ledger, assignments))
        reserved = tuple(ReservedRoom(pod.uid, ledger.cluster.name(row)) for pod, row in assignments if pod.is_expected)
        reports = search.reports()
        limitations = search.limitations(finding)
        placements = search.placement_counts()
        ledger.rollback(mark)
        ledger.ignore(ignored)
        released = () if binds else _claims_to_release(snapshot, unit, options)
    finally:
        ledger.rollback(mark)
    explanation = Explanation(finding, reports, next_step(finding, reports), contradiction, limitations)
    return Decision(binds, explanation, placements, search.is_excluded, reserved, released)


def _binds(ledger: Ledger, assignments: Sequence[tuple[PendingPod, int]]) -> Iterator[Bind]:
    """Return the binds, with what is allocated to pods; most pods are allocated nothing beside their nodes."""
    classes = {pod.pod_class for pod, _ in assignments}
    allocated: Iterable[tuple[Allocation, ...]] = repeat(())
    if any(found.volumes is not None or found.devices is not None for found in classes):
        placed = [PlacedPod(pod.pod_class, row, pod.claims, pod.uid) for pod, row in assignments]
        allocated = ledger.allocators.allocations(placed)
    return (
        Bind(pod.uid, ledger.cluster.name(row), allocations)
        for (pod, row), allocations in zip(assignments, allocated, strict=False)
        if not pod.is_expected
    )


def _claims_to_release(snapshot: Snapshot, unit: Unit, options: SearchOptions) -> tuple[DeviceAllocation, ...]:
    """Return the claims with devices that keep all pending pods of a unit from a place, if no other pods use them."""
    pending = [pod for node in unit.nodes for pod in node.pending]
    claims = snapshot.ledger.device_allocator.claims
    found = claims.used_by_none_but(
        dict.fromkeys(key for pod in pending for key in pod.claims), {pod.uid for pod in pending}
    )
    if not found:
        return ()
    with claims.without(one.claim for one in found):
        search = PlacementSearch(snapshot, unit, options)
        finding, _ = _run(search)
        could_bind = finding is Finding.PLACED and any(not pod.is_expected for pod, _ in search.assignments())
    return found if could_bind else ()


def could_place(snapshot: Snapshot, unit: Unit, options: SearchOptions, *, ignored: Iterable[str] = ()) -> bool:
    """Return whether the bounds on room leave a unit any place; cheaper than a decision, and no promise."""
    ledger = snapshot.ledger
    mark = ledger.mark()
    try:
        ledger.ignore(ignored)
        needs = Needs(unit)
        domains = DomainChoice(snapshot, needs, options.weights)
        domains.pin()
        return needs.admissible[0] and domains.possible(0, snapshot.topology.whole())
    except ContradictionError:
        return False
    finally:
        ledger.rollback(mark)


def _run(search: PlacementSearch) -> tuple[Finding, Contradiction | None]:
    """Return what the search found, and the contradiction where running members contradict their tree."""
    try:
        return search.run(), None
    except ContradictionError as error:
        return Finding.CONTRADICTION, error.contradiction
