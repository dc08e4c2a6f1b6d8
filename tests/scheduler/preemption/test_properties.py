"""What preemption never does, whatever the cluster and whoever comes in whatever order."""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.scheduling.membership import membership
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_scheduler.testing.stage import Stage

SETTLING = 40
"""Rounds in which everything has to come to rest; each is a minute."""


class Root(Struct, frozen=True):
    """A gang, or a pod of its own where it has no minimum."""

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


class Closed:
    """A cluster in which every pod that is evicted comes again, at once and with the priority it had."""

    def __init__(self, nodes: list[int]) -> None:
        self.stage = Stage(*(node(f"n{number}", cpu=cpu) for number, cpu in enumerate(nodes)))
        self.sizes = {f"n{number}": cpu for number, cpu in enumerate(nodes)}
        self.made: dict[str, Pod] = {}
        self.groups: dict[str, Root] = {}
        self.lives: dict[str, int] = {}
        self.stood: set[str] = set()
        """Who had a node when the last round began."""

    def create(self, number: int, root: Root) -> None:
        """Have a root come."""
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
        """Let a minute pass; return who was evicted in it, all of whom are there again afterwards."""
        self.stage.evicted.clear()
        self.stood = set(self.stage.bound())
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
        """Return the groups that go as a whole, and of which some went and some were left running.

        One that had waited and has taken the room of those that went is none of these.
        """
        left = self.stood & self.stage.bound().keys()
        running = {membership(self.stage.pod(name)).group for name in left} - {None}
        struck = {name.split("-")[0] for name in evicted}
        return [name for name in struck & running if name and self.groups[name].whole]


def plans(stage: Stage) -> list[dict[str, Any]]:
    """Return the plans that the log tells of."""
    return [call.kwargs for call in stage.log.calls if call.kwargs.get("event") == "preempting"]


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(ROOTS, min_size=2, max_size=6))
def test_a_closed_system_comes_to_rest(nodes: list[int], roots: list[Root]) -> None:
    """Two preemptors never evict each other for ever, though whoever is evicted comes again and wants its place."""
    closed = Closed(nodes)
    total = 0
    for number, root in enumerate(roots):
        closed.create(number, root)
        evicted = closed.round()
        total += len(evicted)
        assert not closed.overdrawn()
    quiet = 0
    for _ in range(SETTLING):
        evicted = closed.round()
        total += len(evicted)
        quiet = 0 if evicted else quiet + 1
        assert not closed.overdrawn()
    assert quiet > SETTLING // 2
    assert total <= 3 * len(closed.made) * len(roots)
    assert closed.stage.cache.reservations.reserved_uids() == ()


@settings(deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.lists(ROOTS, min_size=2, max_size=5))
@example([2, 3], [Root(1, 0, 1, 1, False), Root(3, 1, 2, 1, True), Root(1, 0, 2, 2, False)])  # noqa: FBT003  # a Root
def test_nobody_is_evicted_for_equals_and_no_unit_is_halved(nodes: list[int], roots: list[Root]) -> None:
    """By what the log says of each plan, and by who still runs."""
    closed = Closed(nodes)
    for number, root in enumerate(roots):
        closed.create(number, root)
        evicted = closed.round()
        assert not closed.halved(evicted)
    for plan in plans(closed.stage):
        name = plan["root"].rsplit("/", 1)[-1].split("-")[0]
        assert all(victim["priority"] < closed.groups[name].priority for victim in plan["victims"])
