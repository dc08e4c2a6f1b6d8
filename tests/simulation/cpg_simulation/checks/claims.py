"""The claims for devices as the rules see them: each with its states, and which process has allocated its devices."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from cpg_simulation.checks.values import Object, RecordedWrite

CLAIMS = "resourceclaims.resource.k8s.io"


class DeviceName(NamedTuple):
    """A device; the pool of a node is called like the node."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.pool}/{self.name}"


@dataclass
class TrackedClaim:
    """A claim: its states by revision, and when and by which process it got its present devices."""

    name: str
    states: list[tuple[int, Object | None]] = field(default_factory=list)
    allocated_at: int = 0
    allocated_by: str = ""
    """Empty for others than our processes."""
    is_given: bool = False
    """Whether one of our processes has given it devices or consumers."""

    @property
    def raw(self) -> Object | None:
        """The present state, or None if it is gone."""
        return self.states[-1][1]

    @property
    def devices(self) -> Sequence[DeviceName]:
        """The devices that it has now."""
        return devices_of(self.raw)

    def states_since(self, seen: float) -> Iterator[Object]:
        """Yield the states from the newest that was seen at a revision on."""
        first = max((place for place, (revision, _) in enumerate(self.states) if revision <= seen), default=-1)
        yield from (raw for _, raw in self.states[max(first, 0) :] if raw is not None)

    def __str__(self) -> str:
        return f"ResourceClaim {self.name}"


TrackedClaims: TypeAlias = dict[str, TrackedClaim]


def track(claims: TrackedClaims, write: RecordedWrite, process: str) -> None:
    """Take the write of a claim; ``process`` is that of ours that wrote."""
    name = f"{write.namespace}/{write.name}"
    claim = claims.setdefault(name, TrackedClaim(name))
    if devices_of(write.new) != devices_of(write.old):
        claim.allocated_at, claim.allocated_by = write.revision, process
    if process and write.new is not None and (claim.allocated_at == write.revision or _new_users(write)):
        claim.is_given = True
    claim.states.append((write.revision, write.new))


def _new_users(write: RecordedWrite) -> set[str]:
    return {*users_of(write.new)} - {*users_of(write.old)}


def claims_of(pod: Object) -> Iterator[str]:
    """Yield the claims of a pod, as ``namespace/name``."""
    made = {one["name"]: one["resourceClaimName"] for one in pod["status"].get("resourceClaimStatuses") or ()}
    for entry in pod["spec"].get("resourceClaims") or ():
        yield f"{pod['metadata']['namespace']}/{entry.get('resourceClaimName') or made.get(entry['name'], '')}"


def devices_of(raw: Object | None) -> Sequence[DeviceName]:
    """Return the devices of a claim."""
    allocation = ((raw or {}).get("status") or {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results") or ()
    return [DeviceName(one["driver"], one["pool"], one["device"]) for one in results]


def users_of(raw: Object | None) -> Sequence[str]:
    """Return the UIDs of the consumers for which a claim is reserved."""
    return [one["uid"] for one in ((raw or {}).get("status") or {}).get("reservedFor") or ()]
