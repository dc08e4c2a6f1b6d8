"""What has to be ready before pods are bound: one plugin for each kind of thing that is allocated beside a node."""

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from cpg_api.core.pod import Pod
from cpg_engine.decisions import Allocation


class PreBind(Protocol):
    """Makes one kind of allocation real, such as the volumes of claims."""

    @property
    def name(self) -> str:
        """Return the name that precedes its problems; ``status.reasons`` has the reason of pods that wait for it."""

    def unready(self, pods: Iterable[Pod]) -> Sequence[str]:
        """Return the objects, by kind and name, that are not ready for these pods; usually none."""

    async def prebind(self, pods: Collection[Pod], allocations: Sequence[Allocation]) -> str:
        """Return as soon as all is ready for the pods, or the problem that prevents it."""
