"""Measure the engine alone: nodes and pods in memory, units in, decisions out, performed as a scheduler would.

``README.md`` says how to compare two versions. Figures are CPU seconds of this process, the best of some runs, each on
nodes of its own: other load on the machine makes them worse, never better.
"""

import argparse
import gc
import sys
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import process_time
from typing import ParamSpec, TypeVar

import yaml
from device_inputs import put_devices, with_claims
from engine_inputs import Scheduler, deep_tree, full, node, pods, trees_of

from cpg_api.core.pod import Pod
from cpg_engine.gangs.diagnosis import Diagnosis
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, Unit, pod_unit, tree_unit
from cpg_engine.preemption.plan import plan_preemption
from cpg_engine.preemption.values import PlanOutcome, VictimUnit
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.builders import pod_group
from cpg_engine.testing.listed_budgets import ListedBudgets
from cpg_lab import devices

HERE = Path(__file__).parent
GROWTH = 4.5
"""The largest allowed ratio between the figures for four times the nodes and for the nodes."""

P = ParamSpec("P")
R = TypeVar("R")
Timed = Callable[[], object]
"""The measured function; its inputs are prepared before."""


def one_gang(
    nodes: int, members: Sequence[Pod], *, key: str | None = None, placed: bool = True, detail: bool = False
) -> Timed:
    """Return a function that schedules one gang of all the pods."""
    scheduler = Scheduler(nodes, SearchOptions(detail=detail))
    (tree,) = trees_of([pod_group("gang", gang=len(members), key=key)]).values()
    return lambda: scheduler.gang(tree, {"gang": members}, placed=placed)


def large_gang(nodes: int) -> Timed:
    """Place one gang of 1,000 identical pods."""
    return one_gang(nodes, pods("large", 1000))


def rack_gang(nodes: int) -> Timed:
    """Place one gang of 1,000 identical pods in one of 50 racks."""
    return one_gang(nodes, pods("rack", 1000), key="rack")


def spread_gang(nodes: int) -> Timed:
    """Place one gang of 1,000 identical pods evenly over 3 zones."""
    return one_gang(nodes, pods("spread", 1000, spread=True))


def gang_with_claims(nodes: int, *requests: dict[str, object], are_new: bool = False, **claim: object) -> Timed:
    """Return a function that schedules one gang of 1,000 pods, each with such a claim; a node has 8 devices.

    Unless the devices are new, a pod with another claim was scheduled before.
    """
    scheduler = Scheduler(nodes)
    catalog = scheduler.snapshot.ledger.devices
    put_devices(catalog, (node(number).metadata.name for number in range(nodes)))
    if not are_new:
        (first,) = with_claims(catalog, pods("first", 1), devices.request(count=2))
        scheduler.single(first)
    members = with_claims(catalog, pods("large", 1000), *requests, **claim)
    (tree,) = trees_of([pod_group("gang", gang=1000)]).values()
    return lambda: scheduler.gang(tree, {"gang": members})


def device_gang(nodes: int) -> Timed:
    """Place one gang of 1,000 pods with a claim for one device each."""
    return gang_with_claims(nodes)


def new_devices(nodes: int) -> Timed:
    """Do the same where no pod had a claim before, so that all slices are read for the first time."""
    return gang_with_claims(nodes, are_new=True)


def matching_devices(nodes: int) -> Timed:
    """Place one gang of 1,000 pods with a claim for four devices each, which have to be on one NUMA node."""
    constraint = {"matchAttribute": f"{devices.DRIVER}/numa"}
    return gang_with_claims(nodes, devices.request(count=4), constraints=[constraint])


def two_sizes() -> list[Pod]:
    """Return 1,000 pods that fit no rack, though those of either size alone would."""
    return [*pods("small", 500, cpu="200m"), *pods("large", 500, cpu="700m")]


def failing_gang(nodes: int) -> Timed:
    """Find that 1,000 pods of two sizes fit none of 50 racks, each of which passes the bounds."""
    return one_gang(nodes, two_sizes(), key="rack", placed=False)


def told_gang(nodes: int) -> Timed:
    """Do the same with detail, which finds the reasons of the nodes."""
    return one_gang(nodes, two_sizes(), key="rack", placed=False, detail=True)


def small_gangs(nodes: int) -> Timed:
    """Place 1,000 gangs of 3 pods, one after the other."""
    scheduler = Scheduler(nodes)
    members = {f"gang-{number}": pods(f"gang-{number}", 3) for number in range(1000)}
    trees = trees_of([pod_group(name, gang=3) for name in members])

    def run() -> None:
        for name, tree in trees.items():
            scheduler.gang(tree, {name: members[name]})

    return run


def small_jobs(nodes: int) -> Timed:
    """Place 300 gangs of 3 pods, each with an image of its own, so that all are of new classes."""
    scheduler = Scheduler(nodes)
    members = {f"gang-{number}": pods(f"gang-{number}", 3, image=f"image-{number}") for number in range(300)}
    trees = trees_of([pod_group(name, gang=3) for name in members])

    def run() -> None:
        for name, tree in trees.items():
            scheduler.gang(tree, {name: members[name]})

    return run


def one_cycle(nodes: int) -> Timed:
    """Place one gang of 3 pods, of a known class, where one node has changed since."""
    scheduler = Scheduler(nodes)
    trees = trees_of([pod_group(f"gang-{number}", gang=3) for number in range(2)])
    scheduler.gang(trees["gang-0"], {"gang-0": pods("gang-0", 3)})
    members = pods("gang-1", 3)
    return lambda: scheduler.gang(trees["gang-1"], {"gang-1": members})


def plain_pods(nodes: int) -> Timed:
    """Place 3,000 single pods, one after the other."""
    scheduler = Scheduler(nodes)
    members = pods("plain", 3000)

    def run() -> None:
        for pod in members:
            scheduler.single(pod)

    return run


def deep_trees(nodes: int) -> Timed:
    """Place 48 trees of three levels and 64 pods, the roots in a block, the leaves in a rack."""
    scheduler = Scheduler(nodes)
    trees = trees_of([group for number in range(48) for group in deep_tree(f"tree-{number}")])
    members = {
        name: {found.key.name: pods(found.key.name, 16) for found in tree.nodes if not found.children}
        for name, tree in trees.items()
    }

    def run() -> None:
        for name, tree in trees.items():
            scheduler.gang(tree, members[name])

    return run


def planned(snapshot: Snapshot, unit: Unit, units: Sequence[VictimUnit], victims: int) -> Timed:
    """Return a function that plans preemption for a unit that needs so many victims."""

    def run() -> None:
        found = plan_preemption(snapshot, unit, SearchOptions(), priority=100, units=units, budgets=ListedBudgets())
        if found.outcome is not PlanOutcome.PLANNED or len(found.evictions) != victims:
            raise ValueError(f"the benchmark has another result than expected: {found.outcome}, {len(found.evictions)}")

    return run


def gang_preempts(nodes: int, key: str | None = None, cpu: str = "800m", victims: int = 500) -> Timed:
    """Plan for one gang of 500 pods where five pods run on each of a fifth of the nodes, which are full."""
    snapshot, units = full(nodes // 5, 5)
    (tree,) = trees_of([pod_group("high", gang=500, key=key)]).values()
    unit = tree_unit(tree, {tree.nodes[0].key: GroupPods(pending=pods("high", 500, cpu=cpu))}, snapshot.ledger)
    return planned(snapshot, unit, units, victims)


def shelf_preempts(nodes: int) -> Timed:
    """Do the same with smaller pods, all of which must be on one of the 50 shelves."""
    return gang_preempts(nodes, key="shelf", cpu="160m", victims=100)


def pod_preempts(nodes: int) -> Timed:
    """Plan for one single pod where ten pods run on each node."""
    snapshot, units = full(nodes, 10)
    return planned(snapshot, pod_unit(pods("high", 1, cpu="400m")[0], snapshot.ledger), units, 1)


MEASURES: Mapping[str, Callable[[int], Timed]] = {
    measure.__name__: measure
    for measure in (
        large_gang,
        small_gangs,
        small_jobs,
        rack_gang,
        deep_trees,
        spread_gang,
        device_gang,
        new_devices,
        matching_devices,
        one_cycle,
        plain_pods,
        failing_gang,
        told_gang,
        gang_preempts,
        shelf_preempts,
        pod_preempts,
    )
}


def best(measure: Callable[[int], Timed], nodes: int, runs: int) -> float:
    """Return the CPU seconds of the best of so many runs, each on nodes of its own."""
    figures = []
    for _ in range(runs):
        timed = measure(nodes)
        gc.collect()
        start = process_time()
        timed()
        figures.append(process_time() - start)
    return min(figures)


def explaining(nodes: int, runs: int) -> float:
    """Return the share of the time of ``failing_gang`` that its diagnosis takes without detail, in per cent.

    All public methods of the diagnosis are timed; of nested calls, the outermost counts.
    """
    spent, depth = 0.0, 0

    def timed(function: Callable[P, R]) -> Callable[P, R]:
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            nonlocal spent, depth
            depth += 1
            start = process_time()
            answer = function(*args, **kwargs)
            depth -= 1
            spent += 0.0 if depth else process_time() - start
            return answer

        return run

    originals = {
        name: method for name, method in vars(Diagnosis).items() if not name.startswith("_") and callable(method)
    }
    for name, method in originals.items():
        setattr(Diagnosis, name, timed(method))
    try:
        shares = []
        for _ in range(runs):
            scheduled = failing_gang(nodes)
            spent, start = 0.0, process_time()
            scheduled()
            shares.append(100 * spent / (process_time() - start))
        return min(shares)
    finally:
        for name, method in originals.items():
            setattr(Diagnosis, name, method)


def ledger_memory(nodes: int, _: int) -> float:
    """Return the MB that the ledger takes for these nodes and 50,000 pods of 500 classes, without the objects."""
    objects = [node(number) for number in range(nodes)]
    members = [pod for number in range(500) for pod in pods(f"job-{number}", 100)]
    gc.collect()
    tracemalloc.start()
    snapshot = new_snapshot()
    for found in objects:
        snapshot.ledger.put_node(found)
    for number, pod in enumerate(members):
        snapshot.ledger.put_pod(pod, objects[number % nodes].metadata.name)
    gc.collect()
    taken, _peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return taken / 2**20


OTHERS: Mapping[str, tuple[str, Callable[[int, int], float]]] = {
    "explaining": ("%", explaining),
    "ledger_memory": ("MB", ledger_memory),
}


def print_figure(name: str, figure: float, budget: float, unit: str) -> bool:
    """Print a line; return whether the figure is over its budget."""
    over = figure > budget
    print(f"{name:<22}{figure:>10.4f} {unit:<2}{budget:>10.4f} {unit:<2}{figure / budget:>8.2f}{'  OVER' * over}")
    return over


def main() -> int:
    """Print a line for each measure; return 1 if one of them is over its budget."""
    names = (*MEASURES, *OTHERS)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"of {', '.join(names)} (default: all)")
    parser.add_argument("--nodes", type=int, default=5000, help="budgets are for 5,000, which is the default")
    parser.add_argument("--growth", action="store_true", help="measure at four times the nodes, too, and compare")
    parser.add_argument("--runs", type=int, default=5, help="runs, of which the best counts (default: 5)")
    arguments = parser.parse_args()
    if unknown := set(arguments.measures) - set(names):
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    budgets = yaml.safe_load((HERE / "budgets.yaml").read_bytes())
    print(f"{'measure':<22}{'figure':>13}{'budget':>13}{'ratio':>8}")
    over = False
    for name in arguments.measures or names:
        budget = budgets[name]["budget"]
        if name in OTHERS:
            unit, measure = OTHERS[name]
            over |= print_figure(name, measure(arguments.nodes, arguments.runs), budget, unit)
            continue
        figure = best(MEASURES[name], arguments.nodes, arguments.runs)
        over |= print_figure(name, figure, budget, "s")
        if arguments.growth:
            larger = best(MEASURES[name], 4 * arguments.nodes, arguments.runs)
            over |= print_figure(f"  at {4 * arguments.nodes} nodes", larger / figure, GROWTH, "x")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
