"""Claims that only one pod may use (ReadWriteOncePod), as VolumeRestrictions has them."""

from collections.abc import Collection, Iterator

import numpy as np

from cpg_engine.cluster.attachments import Attachments
from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass

REASON = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)


class VolumeRestrictions:
    """The filter."""

    def __init__(self, ledger: Ledger) -> None:
        """Use the claims of a ledger."""
        self._ledger = ledger

    def pre_filter(self, pod_class: PodClass) -> "VolumeRestrictionsState | None":
        """Return the state of a class with such a claim, else None."""
        if pod_class.volumes is None:
            return None
        exclusive = self._ledger.storage.resolve(pod_class.volumes).exclusive
        return VolumeRestrictionsState(self._ledger.attachments, exclusive) if exclusive else None


class VolumeRestrictionsState:
    """The exclusive claims of one class; all nodes are alike, wherever another pod uses them."""

    def __init__(self, attachments: Attachments, exclusive: tuple[str, ...]) -> None:
        """Use these claims."""
        self._attachments = attachments
        self._exclusive = exclusive
        self.terms = 1

    def passes(self, rows: Rows) -> Flags:
        """Return True for all nodes if no pod uses any of the claims, else False."""
        return np.full(len(rows), self._attachments.users.keys().isdisjoint(self._exclusive), dtype=np.bool_)

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield the only reason."""
        yield REASON, self.passes(rows)

    def could_ever_pass(self, rows: Rows, _companions: Collection[PodClass] = (), /) -> Flags:
        """Return True for all nodes: the other pod can be evicted."""
        return np.ones(len(rows), dtype=np.bool_)

    def still_passes(self, rows: Rows) -> Flags:
        """Return True for all nodes if no claim has a second user, else False."""
        alone = all(self._attachments.users.get(claim, 0) <= 1 for claim in self._exclusive)
        return np.full(len(rows), alone, dtype=np.bool_)

    def score(self, rows: Rows) -> Scores | None:  # noqa: ARG002 - the protocol has it
        """Return no score."""
        return None
