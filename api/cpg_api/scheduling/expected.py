"""Pods that a group will have and that do not exist yet: their controller creates them once another pod has a node.

An annotation of a PodGroup lists all pods of the group, in the order in which they are created. Those that exist count
for the first entries. A domain is chosen only if it has room for the others as well, and that room is reserved.

The annotation of a Workload is a mapping with such a list for each template. ``TEMPLATE.NUMBER`` is the replica of that
number, where its groups differ. The operator copies the lists to the groups.
"""

from collections.abc import Collection, Mapping, Sequence

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodSpec, PodStatus
from cpg_api.decoding import decode
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.names import EXPECTED_PODS
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_api.structs import ApiStruct

MAX_EXPECTED_PODS = 10_000
"""Per group: a mistyped digit must not make the scheduler search for millions of pods."""
MAX_LENGTH = 16 << 10
"""Characters of the annotation of a group."""
UID_PREFIX = "expected/"
"""Begins the UID of a pod that does not exist yet; real UIDs have no slash."""


class ExpectedPods(ApiStruct, frozen=True):
    """So many pods of a group. Without a spec, they are like the oldest pod of the group."""

    count: int
    spec: PodSpec | None = None


class ExpectedPodsError(ValueError):
    """The annotation of a group is malformed."""


def read_expected_pods(group: Group) -> tuple[ExpectedPods, ...]:
    """Return the pods that a group will have; empty where that is not known."""
    text = group.metadata.annotations.get(EXPECTED_PODS)
    if not text or not isinstance(group, PodGroup):
        return ()
    if len(text) > MAX_LENGTH:
        raise ExpectedPodsError(f"it has more than {MAX_LENGTH} characters")
    try:
        found = decode(text, tuple[ExpectedPods, ...])
    except msgspec.DecodeError as error:
        raise ExpectedPodsError(f"it is no list of counts and pod specs: {error}") from error
    if any(entry.count < 0 for entry in found) or sum(entry.count for entry in found) > MAX_EXPECTED_PODS:
        raise ExpectedPodsError(f"its counts are not from 0 to {MAX_EXPECTED_PODS} in all")
    return found


def encode_expected_pods(entries: Mapping[str, Collection[ExpectedPods]]) -> str:
    """Return the annotation of a Workload, by template; empty where no pods are expected."""
    return "" if not entries else msgspec.json.encode(entries, order="sorted").decode()


def templates_expected_pods(workload: Workload) -> Mapping[str, str]:
    """Return the annotations for the groups of a Workload, by template; empty where its own is malformed."""
    text = workload.metadata.annotations.get(EXPECTED_PODS)
    if not text:
        return {}
    try:
        found = decode(text, dict[str, Raw])
    except msgspec.DecodeError:
        return {}
    return {name: bytes(entries).decode() for name, entries in found.items()}


def missing_pods(key: GroupKey, entries: Sequence[ExpectedPods], existing: Collection[Pod]) -> tuple[Pod, ...]:
    """Return stand-ins for the expected pods of a group that do not exist; none if nothing is known about one."""
    oldest = min(existing, key=_age, default=None)
    found: list[Pod] = []
    counted = len(existing)
    for entry in entries:
        number, counted = max(entry.count - counted, 0), max(counted - entry.count, 0)
        if entry.spec is None and oldest is None:
            return ()
        numbers = range(len(found), len(found) + number)
        found.extend(_stand_in(key, place, entry, oldest) for place in numbers)
    return tuple(found)


def _stand_in(key: GroupKey, number: int, entry: ExpectedPods, oldest: Pod | None) -> Pod:
    """Return a pod that asks for the same; its volumes are not known, because each pod may have its own."""
    spec, labels = entry.spec, dict[str, str]()
    if spec is None and oldest is not None:
        spec, labels = oldest.spec, oldest.metadata.labels
    return Pod(
        metadata=ObjectMeta(
            name=f"{key.name}-expected-{number}",
            namespace=key.namespace,
            uid=f"{UID_PREFIX}{key.namespace}/{key.name}/{number}",
            labels=labels,
        ),
        spec=replace(spec or PodSpec(), node_name="", scheduling_gates=None, volumes=None),
        status=PodStatus(phase="Pending"),
        derived_group=key.name,
    )


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name
