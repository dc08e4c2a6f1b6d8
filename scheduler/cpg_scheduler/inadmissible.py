"""Why a unit cannot be attempted, as values; ``status.messages.units`` turns them into sentences."""

from collections.abc import Mapping
from typing import TypeAlias

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.problems import Problem
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.validation import TreeProblem


class PodDeleted(Struct, frozen=True):
    """The pod of the unit does not exist any more."""

    pod: GroupKey


class PodGated(Struct, frozen=True):
    """The pod of the unit has scheduling gates."""


class InconsistentMembership(Struct, frozen=True):
    """A pod names its group in several ways, which differ."""

    problem: Problem


class GroupKindsNotServed(Struct, frozen=True):
    """A pod names a group that does not exist, and groups of its kind are not read."""

    group: GroupKey
    api: str = ""
    """The API group that is not read; empty where no groups are served at all."""


class GroupMissing(Struct, frozen=True):
    """The tree names a group that does not exist."""

    group: GroupKey
    owner: str = ""
    """The owner for which the operator makes the group, such as ``JobSet train``."""


class TemplateMissing(Struct, frozen=True):
    """The tree waits for the template that completes one of its groups."""

    message: str


class InvalidTree(Struct, frozen=True):
    """The tree breaks rules."""

    problems: tuple[TreeProblem, ...]


class SchedulerNamesDiffer(Struct, frozen=True):
    """Pods of the tree name different schedulers; ``pod`` is the first that does not name ours."""

    pod: str
    theirs: str
    ours: str


class PreemptionPoliciesDiffer(Struct, frozen=True):
    """Pods of the tree have different preemption policies: the first pod of each."""

    pod_of: Mapping[str, str]


class PrioritiesDiffer(Struct, frozen=True):
    """Pods of the tree have another priority than their group."""

    problems: tuple[TreeProblem, ...]


class TreeGated(Struct, frozen=True):
    """Pods of the tree have scheduling gates."""

    pods: tuple[str, ...]


UnitProblem: TypeAlias = (
    PodDeleted
    | PodGated
    | InconsistentMembership
    | GroupKindsNotServed
    | GroupMissing
    | TemplateMissing
    | InvalidTree
    | SchedulerNamesDiffer
    | PreemptionPoliciesDiffer
    | PrioritiesDiffer
    | TreeGated
)


class Inadmissible(Struct, frozen=True):
    """A unit that cannot be attempted, with its pending pods and its groups."""

    problem: UnitProblem
    pods: tuple[Pod, ...] = ()
    groups: tuple[Group, ...] = ()
