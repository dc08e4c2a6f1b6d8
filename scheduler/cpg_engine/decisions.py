"""What a cycle decides: values that the scheduler performs in order."""

from msgspec import Struct

from cpg_api.core.devices import AllocationResult, ResourceClaimSpec
from cpg_api.core.pod import ContainerExtendedResourceRequest
from cpg_engine.verdicts import Explanation


class VolumeAllocation(Struct, frozen=True, tag="volume"):
    """Bind a claim, as ``namespace/name``, to a volume; without a volume, have one provisioned for the node."""

    claim: str
    volume: str | None
    node: str


class DeviceAllocation(Struct, frozen=True, tag="devices"):
    """Allocate devices to a claim, as ``namespace/name``, and reserve the claim for the pod.

    ``is_new`` is False where the claim has this allocation already. ``uid`` is the claim's, since another claim may
    come to have its name.
    """

    claim: str
    uid: str
    result: AllocationResult
    is_new: bool = True


class ExtendedAllocation(Struct, frozen=True, tag="extended"):
    """Create a claim with devices for the extended resources of a pod that its node does not offer.

    ``owner`` is the pod as ``namespace/uid``.
    """

    owner: str
    spec: ResourceClaimSpec
    result: AllocationResult
    mappings: tuple[ContainerExtendedResourceRequest, ...]

    @property
    def claim(self) -> str:
        """Return what stands for the key of the claim; no claim has such a name."""
        return extended_key(self.owner)


def extended_key(owner: str) -> str:
    """Return what stands for the key of the claim for the extended resources of a pod until it has one."""
    return f"<extended-resources>/{owner}"


Allocation = VolumeAllocation | DeviceAllocation | ExtendedAllocation
"""What a pod is allocated beside its node: a union of one type per allocator, see ``cpg_engine.cluster.allocator``."""


class Bind(Struct, frozen=True):
    """Bind a pod to a node, once its allocations have been carried out there."""

    uid: str
    node: str
    allocations: tuple[Allocation, ...] = ()


class ReservedRoom(Struct, frozen=True):
    """The node that has room for a pod that is expected, by UID."""

    uid: str
    node: str


class PlacementCounts(Struct, frozen=True):
    """How many domains a search could choose from, and how many of those that it tried it could fill, or not."""

    offered: int = 0
    feasible: int = 0
    infeasible: int = 0


class Decision(Struct, frozen=True):
    """Everything that was decided about one unit; nothing is bound unless the whole minimum is.

    ``is_excluded`` says that the bounds on room leave the unit no place, so that no search had to prove it.
    ``reserved`` is the room for pods of the unit that do not exist yet. ``released`` are claims that no other pod uses,
    and without whose devices the unit could be placed.
    """

    binds: tuple[Bind, ...]
    explanation: Explanation
    placements: PlacementCounts = PlacementCounts()
    is_excluded: bool = False
    reserved: tuple[ReservedRoom, ...] = ()
    released: tuple[DeviceAllocation, ...] = ()
