"""Claims that are bound once their pod has a node, as VolumeBinding has them.

A node passes if every such claim can get a volume that the node reaches, or have one provisioned for it. Which volume
that is depends on what other claims were allocated, in this simulation or before: see ``cluster.volume_allocator``.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.volumes import ClaimInfo

REASON = "node(s) didn't find available persistent volumes to bind"


class VolumeBinding:
    """The filter."""

    def __init__(self, ledger: Ledger) -> None:
        """Use the volumes of a ledger."""
        self._ledger = ledger

    def pre_filter(self, pod_class: PodClass) -> "VolumeBindingState | None":
        """Return the state of a class with claims to bind, else None."""
        if pod_class.volumes is None:
            return None
        late = self._ledger.storage.resolve(pod_class.volumes).delayed
        return VolumeBindingState(self._ledger, late) if late else None


class VolumeBindingState:
    """The claims to bind of one class."""

    def __init__(self, ledger: Ledger, late: Sequence[ClaimInfo]) -> None:
        """Use these claims."""
        self._ledger = ledger
        self._late = late
        self.terms = len(late)

    def passes(self, rows: Rows) -> Flags:
        """Return which nodes can have a volume for every claim."""
        return self._ledger.volume_allocator.room_for(self._late)[rows]

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield the only reason."""
        yield REASON, self.passes(rows)

    def could_ever_pass(self, rows: Rows, _companions: Collection[PodClass] = (), /) -> Flags:
        """Return the nodes that pass now: evicting a pod frees no volume."""
        return self.passes(rows)

    def still_passes(self, rows: Rows) -> Flags:
        """Return True for all nodes: the allocation of a pod's claims is its own."""
        return np.ones(len(rows), dtype=np.bool_)

    def score(self, rows: Rows) -> Scores | None:  # noqa: ARG002 - the protocol has it
        """Return no score."""
        return None
