"""All objects that a decision depends on, wherever they come from, and the scheduler's cache made of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_cli.cluster.kinds import FIELDS
from cpg_engine.gangs.search import SearchOptions
from cpg_scheduler.debug.dump import FORMAT, Dump, GroupsOfFlavour

GROUP_FIELDS: dict[type, str] = {
    PodGroup: "pod_groups",
    CompositePodGroup: "composite_pod_groups",
    Workload: "workloads",
}


@dataclass
class ClusterObjects:
    """The objects of a cluster, by kind; those of the groups' API by flavour and kind."""

    by_kind: dict[type, list[Any]] = field(default_factory=lambda: {kind: [] for kind in FIELDS})
    groups: dict[str, dict[type, list[Any]]] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    """The resources that could not be read, with the reason; answers may be wrong without them."""
    refused: list[str] = field(default_factory=list)
    """The objects that make no sense, with their problems."""
    others: list[Mapping[str, Any]] = field(default_factory=list)
    """Objects of other kinds, as plain data."""

    def to_dump(self, scheduler_name: str = SCHEDULER_NAME, *, taken: float = 0.0) -> Dump:
        """Return the objects in the form from which the scheduler's cache is made."""
        groups = {
            flavour: GroupsOfFlavour(**{GROUP_FIELDS[kind]: found for kind, found in kinds.items()})
            for flavour, kinds in self.groups.items()
        }
        plain: dict[str, Any] = {FIELDS[kind]: found for kind, found in self.by_kind.items()}
        return Dump(
            format=FORMAT,
            scheduler_name=scheduler_name,
            options=SearchOptions(),
            groups=groups,
            assumed=(),
            nominations=(),
            queue=(),
            taken=taken,
            **plain,
        )
