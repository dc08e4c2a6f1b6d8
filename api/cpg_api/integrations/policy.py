"""What the annotations of an owner ask for. Owners' annotations reach no pod, so the operator alone reads them."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cpg_api.problems import quote
from cpg_api.quantity import parse_int64
from cpg_api.scheduling.names import GROUP
from cpg_api.scheduling.policies import (
    AllDisruptionMode,
    DisruptionMode,
    SchedulingConstraints,
    SingleDisruptionMode,
    TopologyConstraint,
)
from cpg_api.schema import LABEL_KEY, MAX_LABEL_KEY

REQUIRED, REPLICA_REQUIRED = f"{GROUP}/required-topology", f"{GROUP}/replica-required-topology"
PREFERRED, REPLICA_PREFERRED = f"{GROUP}/preferred-topology", f"{GROUP}/replica-preferred-topology"
MIN_GROUPS, MIN_COUNT = f"{GROUP}/min-groups", f"{GROUP}/min-count"
DISRUPTION_MODE, REPLICA_BY = f"{GROUP}/disruption-mode", f"{GROUP}/replica-by"
JOB_INDEX = "job-index"
MODES = {
    "all": DisruptionMode(all=AllDisruptionMode()),
    "single": DisruptionMode(single=SingleDisruptionMode()),
}

_KEY = re.compile(LABEL_KEY)


class OwnerPolicy(NamedTuple):
    """The wishes of an owner, and the problems with some of them, which count as not given."""

    whole: SchedulingConstraints | None = None
    replica: SchedulingConstraints | None = None
    min_groups: int | None = None
    min_count: int | None = None
    mode: DisruptionMode | None = None
    pairs_replicas: bool = False
    """Whether the replicas of the same number in all roles form a group."""
    problems: tuple[str, ...] = ()


def read_policy(*owners: Mapping[str, str]) -> OwnerPolicy:
    """Return the policy of an owner from its annotations; those of the first of several owners win."""
    given: dict[str, str] = {}
    for annotations in reversed(owners):
        given.update(annotations)
    problems: list[str] = []
    mode = _choice(given, DISRUPTION_MODE, MODES, problems)
    return OwnerPolicy(
        whole=_constraints(given, REQUIRED, PREFERRED, problems),
        replica=_constraints(given, REPLICA_REQUIRED, REPLICA_PREFERRED, problems),
        min_groups=_count(given, MIN_GROUPS, problems),
        min_count=_count(given, MIN_COUNT, problems),
        mode=MODES[mode] if mode is not None else None,
        pairs_replicas=_choice(given, REPLICA_BY, (JOB_INDEX,), problems) is not None,
        problems=tuple(problems),
    )


def _constraints(
    given: Mapping[str, str], required: str, preferred: str, problems: list[str]
) -> SchedulingConstraints | None:
    topology, narrower = (_topology(given, key, problems) for key in (required, preferred))
    if topology is None and narrower is None:
        return None
    return SchedulingConstraints(topology=topology, preferred_topology=narrower)


def _topology(given: Mapping[str, str], key: str, problems: list[str]) -> tuple[TopologyConstraint, ...] | None:
    value = given.get(key)
    if value is None:
        return None
    if len(value) > MAX_LABEL_KEY or not _KEY.fullmatch(value):
        problems.append(f"{key}: {quote(value)} is no key of a node label")
        return None
    return (TopologyConstraint(value),)


def _count(given: Mapping[str, str], key: str, problems: list[str]) -> int | None:
    value = given.get(key)
    if value is None:
        return None
    number = parse_int64(value) if value.isdigit() else None
    if number is None or not 0 < number < 2**31:
        problems.append(f"{key}: {quote(value)} is no number from 1")
        return None
    return number


def _choice(given: Mapping[str, str], key: str, choices: Iterable[str], problems: list[str]) -> str | None:
    value = given.get(key)
    if value is None or value in choices:
        return value
    problems.append(f"{key}: must be {' or '.join(choices)}, not {quote(value)}")
    return None
