"""What preemption never does, whatever the cluster, and in whatever order roots arrive."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.scheduling.membership import membership
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_scheduler.testing.stage import Stage

MAX_ROUNDS = 40
"""Rounds, of a minute each, in which evictions have to end."""


class Root(Struct, frozen=True):
    """A gang, or a single pod if it has no minimum."""

    size: int
    minimum: int
    cpu: int
    priority: int
    whole: bool


ROOTS = st.builds(
    Root,
    size=st.integers(1, 3),
    minimum=st.integers(0, 2),
    cpu=st.integers(1, 2),
    priority=st.sampled_from([1, 2, 3]),
    whole=st.booleans(),
)


class ClosedSystem:
    """A cluster in which every evicted pod is created again at once, with its old priority."""

    def __init__(self, nodes: list[int]) -> None:
        self.stage = Stage(*(node(f"n{number}", cpu=cpu) for number, cpu in enumerate(nodes)))
        self.sizes = {f"n{number}": cpu for number, cpu in enumerate(nodes)}
        self.made: dict[str, Pod] = {}
        self.groups: dict[str, Root] = {}
        self.lives: dict[str, int] = {}
        self.running: set[str] = set()
        """The pods that had a node when the last round began."""

    def create(self, number: int, root: Root) -> None:
        """Create a root."""
        name = f"r{number}"
        grouped = root.minimum > 0
        self.groups[name] = root
        if grouped:
            minimum = min(root.minimum, root.size)
            self.stage.put(pod_group(name, gang=minimum, priority=root.priority, all_=root.whole))
        for member in range(root.size if grouped else 1):
            one = pod(f"{name}-{member}", group=name if grouped else None, cpu=root.cpu, priority=root.priority)
            self.made[one.metadata.name] = one
            self.stage.put(one)

    def round(self) -> list[str]:
        """Let a minute pass; return the pods that were evicted, all of which are created again."""
        self.stage.evicted.clear()
        self.running = set(self.stage.bound())
        self.stage.settle(60)
        evicted = list(self.stage.evicted)
        for name in evicted:
            self.lives[name] = self.lives.get(name, 0) + 1
            made = self.made[name]
            uid = f"{made.metadata.uid}-{self.lives[name]}"
            self.stage.put(replace(made, metadata=replace(made.metadata, uid=uid)))
        return evicted

    def overdrawn(self) -> list[str]:
        """Return the nodes that have more pods than room."""
        taken: dict[str, int] = {}
        for name, where in self.stage.bound().items():
            taken[where] = taken.get(where, 0) + self.groups[name.split("-")[0]].cpu
        return [name for name, number in taken.items() if number > self.sizes[name]]

    def halved(self, evicted: list[str]) -> list[str]:
        """Return the groups of which some pods were evicted and others left running, though a group is one unit.

        A pod that was pending and has taken the room of the evicted ones does not count.
        """
        left = self.running & self.stage.bound().keys()
        running = {membership(self.stage.pod(name)).group for name in left} - {None}
        evicted_groups = {name.split("-")[0] for name in evicted}
        return [name for name in evicted_groups & running if name and self.groups[name].whole]


def plans(stage: Stage) -> list[dict[str, Any]]:
    """Return the plans in the log."""
    return [call.kwargs for call in stage.log.calls if call.kwargs.get("event") == "preempting"]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(ROOTS, min_size=2, max_size=6))
def test_evictions_end_in_a_closed_system(nodes: list[int], roots: list[Root]) -> None:
    """Two preemptors never evict each other for ever, though evicted pods are created again at once."""
    closed = ClosedSystem(nodes)
    total = 0
    for number, root in enumerate(roots):
        closed.create(number, root)
        evicted = closed.round()
        total += len(evicted)
        assert not closed.overdrawn()
    quiet = 0
    for _ in range(MAX_ROUNDS):
        evicted = closed.round()
        total += len(evicted)
        quiet = 0 if evicted else quiet + 1
        assert not closed.overdrawn()
    assert quiet > MAX_ROUNDS // 2
    assert total <= 3 * len(closed.made) * len(roots)
    assert closed.stage.cache.reservations.reserved_uids() == ()


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(ROOTS, min_size=2, max_size=5))
@example([2, 3], [Root(1, 0, 1, 1, False), Root(3, 1, 2, 1, True), Root(1, 0, 2, 2, False)])  # noqa: FBT003  # a Root
def test_victims_have_lower_priority_and_units_are_evicted_as_a_whole(nodes: list[int], roots: list[Root]) -> None:
    """By the plans in the log, and by the pods that still run."""
    closed = ClosedSystem(nodes)
    for number, root in enumerate(roots):
        closed.create(number, root)
        evicted = closed.round()
        assert not closed.halved(evicted)
    for plan in plans(closed.stage):
        name = plan["root"].rsplit("/", 1)[-1].split("-")[0]
        assert all(victim["priority"] < closed.groups[name].priority for victim in plan["victims"])
