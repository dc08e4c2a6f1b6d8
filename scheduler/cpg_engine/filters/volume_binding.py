"""Claims that are bound when their pod has a node, as VolumeBinding has them.

A node is in if every such claim can have a volume that is reached from it, or have one made there. Which volume it is
depends on what other claims were given, in this simulation or not long ago: see ``cluster.volume_allocator``.
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
        """Look at a ledger."""
        self._ledger = ledger

    def pre_filter(self, pod_class: PodClass) -> "VolumeBindingState | None":
        """Return the view of a class that has claims to bind."""
        if pod_class.volumes is None:
            return None
        late = self._ledger.storage.resolve(pod_class.volumes).delayed
        return VolumeBindingState(self._ledger, late) if late else None


class VolumeBindingState:
    """The nodes as a class sees them that has claims to bind."""

    def __init__(self, ledger: Ledger, late: Sequence[ClaimInfo]) -> None:
        """Look at these claims."""
        self._ledger = ledger
        self._late = late

    def passes(self, rows: Rows) -> Flags:
        """Tell which nodes can have a volume for every claim."""
        return self._ledger.volume_allocator.room_for(self._late)[rows]

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield the one reason to be out."""
        yield REASON, self.passes(rows)

    def could_ever_pass(self, rows: Rows, _company: Collection[PodClass] = (), /) -> Flags:
        """Tell the same: a volume is not set free by evicting a pod."""
        return self.passes(rows)

    def still_passes(self, rows: Rows) -> Flags:
        """Tell that every pod may stay: what was chosen for its claims is its own."""
        return np.ones(len(rows), dtype=np.bool_)

    def score(self, rows: Rows) -> Scores | None:  # noqa: ARG002 - the protocol has it
        """Prefer nothing."""
        return None
