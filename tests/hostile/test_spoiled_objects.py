"""Malformed and extreme objects straight into the decoders, and from there through scheduler and operator.

The suite takes 2,000 objects; ``make hostile`` takes 100,000 (``HOSTILE_OBJECTS``) from the seed ``HOSTILE_SEED`` on.
"""

import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec
import pytest
import result_files
from tests.hostile.canary import Canary
from tests.hostile.spoiled_objects import SpoiledObject, Spoiler
from tests.hostile.worlds import World

from cpg_api.parsing import Rejected, parse_list, parse_object

OBJECTS = int(os.environ.get("HOSTILE_OBJECTS", "2000"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))
RESULTS = os.environ.get("HOSTILE_RESULTS", "")
"""The folder for the result file; empty if the results are not kept."""
SHARDS = 2
OBJECTS_PER_BATCH, OBJECTS_PER_WORLD = 50, 500
MAX_SECONDS = 5.0
"""CPU seconds of one object, or of all attempts and reconciles after a batch, beside other tests."""
MAX_MB_OF_GROWTH = 100.0
"""Between the first tenth of the objects and the end; caches of selectors and quantities fill meanwhile."""


def megabytes() -> float:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class HostileRun:
    """A world, its canary, and the figures of a run."""

    def __init__(self, seed: int) -> None:
        """Start with an empty world."""
        self.spoiler = Spoiler(seed)
        self.world = World()
        self.canary = Canary(self.world)
        self.counts = Counter[str]()
        self.slowest = (0.0, "")

    def run(self, count: int) -> None:
        """Take so many spoiled objects, in batches; after each, the canary must be scheduled as ever."""
        for number, found in enumerate(self.spoiler.objects(count)):
            if number % OBJECTS_PER_WORLD == 0:
                self.refill()
            self.take(found)
            if number % OBJECTS_PER_BATCH == OBJECTS_PER_BATCH - 1:
                self.timed(found, self.canary.check)
        self.empty()

    def refill(self) -> None:
        """Delete everything, and create the valid objects among which the spoiled ones come."""
        self.empty()
        self.canary = Canary(self.world)
        for found in self.spoiler.world():
            self.world.take(found.place, "ADDED", found.body)
        self.world.settle()

    def empty(self) -> None:
        """Delete everything; nothing may be left of it."""
        self.world.empty()
        assert self.world.left() == []

    def take(self, found: SpoiledObject) -> None:
        """Take an object as it is spoiled, new or as a change of the valid one."""
        is_change = self.spoiler.random.random() < 0.4
        if is_change:
            self.world.take(found.place, "ADDED", found.valid)
        self.timed(found, lambda: self.world.take(found.place, "MODIFIED" if is_change else "ADDED", found.body))
        self.counts[found.kind] += 1

    def timed(self, found: SpoiledObject, act: Callable[[], None]) -> None:
        """Act within bounded time; a failure names the object."""
        began = time.process_time()
        try:
            act()
        except Exception as error:
            error.add_note(f"after {found.kind} {found.name}: {'; '.join(found.changes)}\n{found.body[:2000]!r}")
            raise
        self.slowest = max(self.slowest, (time.process_time() - began, f"{found.kind}: {'; '.join(found.changes)}"))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_no_object_harms_scheduler_or_operator(shard: int) -> None:
    """No exception, no endless loop, no change of other decisions, no memory that stays."""
    measured, began, count = result_files.measured_code(), time.process_time(), OBJECTS // SHARDS
    run = HostileRun(SEED * SHARDS + shard)
    run.run(count // 10)
    first = megabytes()
    run.run(count - count // 10)
    figures = {
        "objects": sum(run.counts.values()),
        "seed": SEED * SHARDS + shard,
        "kinds": dict(sorted(run.counts.items())),
        **run.world.figures(),
        "cpu_seconds": round(time.process_time() - began, 1),
        "slowest_cpu_seconds": round(run.slowest[0], 3),
        "slowest": run.slowest[1],
        "first_mb": round(first),
        "peak_mb": round(megabytes()),
    }
    if RESULTS:
        result_files.write_result(f"hostile-objects-{shard}", figures, measured=measured)
    assert figures["refused"]
    assert run.slowest[0] < MAX_SECONDS, run.slowest
    assert megabytes() - first < MAX_MB_OF_GROWTH


def test_a_page_of_objects_is_read_as_each_alone() -> None:
    """What fits is in the list, what does not is rejected, and neither concerns the others."""
    world = World()
    for place, reflector in world.scheduler.reflectors.items():
        found = [one for one in Spoiler(SEED).objects(1000) if one.place == place and is_json(one.body)]
        kind = reflector.source.kind
        page = parse_list(b'{"items": [%s]}' % b",".join(one.body for one in found), kind)
        alone = [parse_object(one.body, kind) for one in found]
        assert page.items == tuple(one for one in alone if not isinstance(one, Rejected))
        assert page.rejected == tuple(one for one in alone if isinstance(one, Rejected))
        again = [parse_object(msgspec.json.encode(one), kind) for one in page.items]
        assert again == list(page.items)


def is_json(body: bytes) -> bool:
    """Return whether a page could have this item: one that is nested too deeply has its page cut."""
    try:
        msgspec.json.decode(body, type=msgspec.Raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def groups(parents: Iterator[tuple[int, int | None]]) -> Iterator[bytes]:
    """Yield CompositePodGroups by number and parent."""
    for number, parent in parents:
        spec = {"schedulingPolicy": {"gang": {"minGroupCount": 1}}, "priority": 0}
        above = {} if parent is None else {"parentCompositePodGroupName": f"tree-{parent}"}
        meta = {"name": f"tree-{number}", "namespace": "hostile", "uid": f"tree-{number}", "resourceVersion": "1"}
        yield msgspec.json.encode({"metadata": meta, "spec": spec | above})


@pytest.mark.parametrize(
    "parents",
    [
        [(number, number) for number in range(300)],
        [(number, number // 7 * 7 + (number + 1) % 7) for number in range(700)],
        [(number, number - 1 if number else None) for number in range(1000)],
        [(number, 0 if number else None) for number in range(2000)],
        [(number, number - 1 if number else 999) for number in range(1000)],
    ],
    ids=["own parents", "cycles of seven", "a chain of 1,000", "2,000 children", "a cycle of 1,000"],
)
def test_forests_of_any_form_are_handled_in_bounded_time(parents: list[tuple[int, int | None]]) -> None:
    """Pods are in the lowest groups; then the groups are deleted in another order."""
    world, began = World(), time.process_time()
    canary, place = Canary(world), ("scheduling.cpg.dev", "CompositePodGroup")
    bodies = list(groups(iter(parents)))
    for body in bodies:
        world.take(place, "ADDED", body)
    for number in range(0, len(parents), 50):
        for found, plain in hostile_gang(number):
            world.take(found, "ADDED", msgspec.json.encode(plain))
    world.settle()
    canary.check()
    for body in bodies[::2]:
        world.take(place, "DELETED", body)
    world.settle()
    world.empty()
    assert world.left() == []
    assert time.process_time() - began < 60


def hostile_gang(parent: int) -> Iterator[tuple[tuple[str, str], dict[str, object]]]:
    """Yield a PodGroup below a group, and a pod of it."""
    name = f"gang-{parent}"
    meta = {"name": name, "namespace": "hostile", "uid": name, "resourceVersion": "1"}
    spec = {
        "parentCompositePodGroupName": f"tree-{parent}",
        "schedulingPolicy": {"gang": {"minCount": 1}},
        "priority": 0,
    }
    yield ("scheduling.cpg.dev", "PodGroup"), {"metadata": meta, "spec": spec}
    labels = {"scheduling.cpg.dev/pod-group": name}
    yield ("", "Pod"), {"metadata": meta | {"labels": labels}, "spec": {"schedulerName": "cpg-scheduler"}, "status": {}}
