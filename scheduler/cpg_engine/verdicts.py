"""The result for a tree as data; the scheduler makes the sentences from it."""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from cpg_api.problems import Problem
from cpg_api.scheduling.forest import GroupKey


class Status(StrEnum):
    """The four statuses of KEP-6012, the same at every level."""

    SUCCESS = "Success"
    WAIT = "Wait"
    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"


class Finding(StrEnum):
    """How the search for a placement ended.

    ``IMPOSSIBLE`` is a proof, by a sound bound or because everything was tried. ``NOT_FOUND`` is not: the search is
    greedy where pods of several shapes compete, and another order might have fitted. Nor is ``OUT_OF_BUDGET``.
    """

    PLACED = "Placed"
    INADMISSIBLE = "Inadmissible"
    IMPOSSIBLE = "Impossible"
    NOT_FOUND = "NotFound"
    OUT_OF_BUDGET = "OutOfBudget"
    CONTRADICTION = "Contradiction"


class Lack(StrEnum):
    """What keeps a group below its minimum, whatever nodes there are."""

    MEMBERS = "Members"
    VOLUMES = "Volumes"
    DEVICES = "Devices"


class Limitation(StrEnum):
    """Why a search that found nothing proves nothing."""

    SHAPES = "Shapes"
    """Its pods have several shapes: they are placed one by one, and another order might have fitted."""
    TOPOLOGY = "Topology"
    """Its PodGroups require different topology keys."""
    OTHER_PODS = "OtherPods"
    """Its pods depend on where other pods are: by affinity, spread, host ports, volumes or shared devices."""
    DEVICES = "Devices"
    """A pod is given the first devices that fit, and others might have left room for one more pod of the node."""
    BUDGET = "Budget"
    """The budget was used up."""


class Domain(Struct, frozen=True):
    """A value of a node label."""

    key: str
    value: str


class StatusCounts(Struct, frozen=True):
    """M, S, R, U and UU of a group: counts of pods at a leaf, and of child groups above."""

    minimum: int
    scheduled: int = 0
    remaining: int = 0
    unschedulable: int = 0
    unresolvable: int = 0

    @property
    def status(self) -> Status:
        """Return the status that follows from the counts."""
        if self.scheduled >= self.minimum:
            return Status.SUCCESS
        if self.scheduled + self.remaining >= self.minimum:
            return Status.WAIT
        if self.scheduled + self.remaining + self.unschedulable >= self.minimum:
            return Status.UNSCHEDULABLE
        return Status.UNRESOLVABLE


class FilterReason(Struct, frozen=True):
    """Why some nodes are rejected for a pod, and how many."""

    text: str
    nodes: int


class DeviceSupply(Struct, frozen=True, tag=True):
    """What some nodes have of the devices of a class that a request asks for, each device counted once.

    So many ``pods`` need ``needed`` devices like that each, 0 for all of a node; ``most`` are free on one node. Devices
    that are not free are counted by the first reason: ``unmatched`` by ``selector``, ``failing`` by ``problem``, which
    is what is wrong with a pool where no selector fails. ``constraint`` is what the devices of a pod satisfy together.
    """

    request: str
    device_class: str
    pods: int
    needed: int
    most: int = 0
    free: int = 0
    taken: int = 0
    used_up: int = 0
    tainted: int = 0
    too_small: int = 0
    unmatched: int = 0
    failing: int = 0
    selector: str = ""
    problem: str = ""
    constraint: str = ""
    counted: int = 0
    """How many of the nodes were looked at, if not all."""

    @property
    def total(self) -> int:
        """The devices of the class."""
        taken = self.taken + self.used_up
        return self.free + taken + self.tainted + self.too_small + self.unmatched + self.failing


class ClaimElsewhere(Struct, frozen=True, tag=True):
    """A claim with devices that none of some nodes can use: the first node that can, and how many can."""

    claim: str
    node: str = ""
    nodes: int = 0


DeviceFinding: TypeAlias = DeviceSupply | ClaimElsewhere
"""Why claims of pods cannot be satisfied on some nodes."""


class CandidateDomain(Struct, frozen=True):
    """A domain that was considered: for how many of the pods below the group it has room.

    ``shortage`` is for how many more it would have to have room, at least, to hold the group's minimum. ``devices`` is
    known for the closest domain, where devices are what it lacks.
    """

    domain: Domain
    nodes: int
    fits: int
    wanted: int
    shortage: int = 0
    reasons: tuple[FilterReason, ...] = ()
    devices: DeviceFinding | None = None


class InvalidPod(Struct, frozen=True):
    """A pod that can never be scheduled, because its spec makes no sense."""

    uid: str
    problems: tuple[Problem, ...]


class GroupReport(Struct, frozen=True):
    """The result for one group of the tree, in the attempt that placed most.

    ``domain`` is where the group was placed, in an unplaced tree only during that attempt. ``candidates`` are the
    closest of the ``domains`` that were considered, the very closest first. ``blockers`` are the children that kept
    the group below its minimum. ``reasons`` are, at a leaf, why the ``nodes`` were rejected for the first pod without
    one, and ``devices`` what they lack of devices. ``failed_ancestor`` is the highest group above it that has no place,
    so that placements below it were rolled back; if no node could help a group above it, it is that one. ``lack`` is
    what the group lacks in that case.
    """

    key: GroupKey
    counts: StatusCounts
    domain: Domain | None = None
    candidates: tuple[CandidateDomain, ...] = ()
    blockers: tuple[GroupKey, ...] = ()
    nodes: int = 0
    reasons: tuple[FilterReason, ...] = ()
    invalid: tuple[InvalidPod, ...] = ()
    failed_ancestor: GroupKey | None = None
    domains: int = 0
    lack: Lack | None = None
    devices: DeviceFinding | None = None

    @property
    def status(self) -> Status:
        """Return the status of the group."""
        return self.counts.status


class Remedy(StrEnum):
    """What a user can do about a tree that was not placed."""

    ADD_MEMBERS = "AddMembers"
    MAKE_ROOM = "MakeRoom"
    CHANGE_DEMANDS = "ChangeDemands"
    PROVIDE_VOLUMES = "ProvideVolumes"
    PROVIDE_DEVICES = "ProvideDevices"
    MEND_PODS = "MendPods"
    MOVE_MEMBERS = "MoveMembers"
    RAISE_BUDGET = "RaiseBudget"


class NextStep(Struct, frozen=True):
    """What to do, at which group, for how many pods or groups, in which domain."""

    remedy: Remedy
    group: GroupKey
    count: int = 0
    domain: Domain | None = None


class Contradiction(Struct, frozen=True):
    """Running members that contradict the required topology of a group.

    ``domains`` are the domains of the label ``key`` that members run in. Without any, a member runs on a node that does
    not have the label.
    """

    group: GroupKey
    key: str
    domains: tuple[str, ...] = ()


class Explanation(Struct, frozen=True):
    """Why a tree was placed or not, group by group in the order of the tree.

    ``limitations`` are why ``NOT_FOUND`` or ``OUT_OF_BUDGET`` is no proof.
    """

    finding: Finding
    reports: tuple[GroupReport, ...]
    next_step: NextStep | None = None
    contradiction: Contradiction | None = None
    limitations: tuple[Limitation, ...] = ()
