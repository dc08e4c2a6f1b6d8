"""How many volumes of a CSI driver a node attaches, as NodeVolumeLimits has it.

A volume that is attached to the node already costs nothing. An inline volume is one more for each pod; kube-scheduler
does not count those, although the limit in CSINode is meant for all volumes in use on the node.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from cpg_engine.cluster.attachments import Attachments
from cpg_engine.cluster.axes import Flags, Rows, Scores
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import PodClass
from cpg_engine.cluster.volumes import PodVolumes, VolumeHandle

REASON = "node(s) exceed max volume count"


class NodeVolumeLimits:
    """The filter."""

    def __init__(self, ledger: Ledger) -> None:
        """Use the volumes of a ledger."""
        self._ledger = ledger

    def pre_filter(self, pod_class: PodClass) -> "NodeVolumeLimitsState | None":
        """Return the state of a class that attaches volumes of a driver with a limit, else None."""
        volumes = pod_class.volumes
        if volumes is None:
            return None
        limits = self._ledger.attachments.limits()
        state = NodeVolumeLimitsState(
            self._ledger.attachments, limits, self._ledger.storage.resolve(volumes).handles, volumes
        )
        return state if state.most else None


class NodeVolumeLimitsState:
    """The volumes of one class; ``most`` is how many, by driver, a pod of it attaches to an empty node."""

    def __init__(
        self,
        attachments: Attachments,
        limits: Mapping[str, Scores],
        handles: frozenset[VolumeHandle],
        volumes: PodVolumes,
    ) -> None:
        """Count what a pod of the class attaches."""
        self._attachments = attachments
        self._limits = limits
        self._handles = tuple(handle for handle in handles if handle.driver in limits)
        inline = [driver for driver, number in volumes.inline for _ in range(number) if driver in limits]
        self.most = Counter([*(handle.driver for handle in self._handles), *inline])
        self.terms = len(self.most)

    def passes(self, rows: Rows) -> Flags:
        """Return which nodes can attach the volumes that are not attached yet."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for driver, most in self.most.items():
            limit, attached = self._limits[driver], self._attachments.attached(driver)
            more = np.full(len(limit), most, dtype=np.int64)
            for handle in self._handles:
                if handle.driver == driver:
                    more[self._attachments.rows_with(handle)] -= 1
            answer &= ((more == 0) | (attached + more <= limit))[rows]
        return answer

    def checks(self, rows: Rows) -> Iterator[tuple[str, Flags]]:
        """Yield the only reason."""
        yield REASON, self.passes(rows)

    def could_ever_pass(self, rows: Rows, _companions: Collection[PodClass] = (), /) -> Flags:
        """Return which nodes could attach everything if they had nothing attached, or can do so now."""
        empty = np.ones(len(rows), dtype=np.bool_)
        for driver, most in self.most.items():
            empty &= most <= self._limits[driver][rows]
        return empty | self.passes(rows)

    def still_passes(self, rows: Rows) -> Flags:
        """Return which nodes are within the limit, or would attach as much without the pod."""
        answer = np.ones(len(rows), dtype=np.bool_)
        for driver, most in self.most.items():
            own = np.full(len(rows), most, dtype=np.int64)
            for handle in self._handles:
                if handle.driver == driver:
                    own -= self._attachments.uses(handle, rows) > 1
            answer &= (own == 0) | (self._attachments.attached(driver)[rows] <= self._limits[driver][rows])
        return answer

    def score(self, rows: Rows) -> Scores | None:  # noqa: ARG002 - the protocol has it
        """Return no score."""
        return None
