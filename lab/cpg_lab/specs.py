"""What a cluster shall be: versions, gates, components, nodes. Plain data, checked when made."""

from dataclasses import dataclass
from typing import Literal, get_args

from cpg_lab.errors import DescriptionError
from cpg_lab.nodes import NodePool, check_names
from cpg_lab.versions import COMPONENTS as PROGRAMS_OF

Gates = Literal["default", "native"]
Component = Literal["controller-manager", "scheduler", "kwok"]

COMPONENTS: tuple[Component, ...] = get_args(Component)
NEWEST = "1.37"


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """One cluster. etcd and the API server are always there; everything else is asked for by name."""

    kubernetes: str = NEWEST
    gates: Gates = "default"
    """`native` switches on the alpha API of pod groups, in every component alike."""
    components: tuple[Component, ...] = ()
    """`scheduler` is Kubernetes' own, the peer that ours is compared with."""
    nodes: tuple[NodePool, ...] = ()
    fsync: bool = False
    """Whether etcd waits for the disk; only crashes of etcd itself need it."""
    watch_cache: bool = True
    """Whether the API server answers watches from its memory; without, from etcd, which forgets when it compacts."""
    node_lifecycle: bool = False
    """Whether nodes send leases, and the controller manager taints those that stop."""
    service_accounts: bool = False
    """Whether pods get the token of their service account, as real ones need it; they wait for the account."""
    max_requests_inflight: int = 0
    max_mutating_requests_inflight: int = 0
    """Above zero: how many requests the API server takes at once, for clusters under load."""

    def __post_init__(self) -> None:
        if self.kubernetes not in PROGRAMS_OF:
            known = ", ".join(PROGRAMS_OF)
            raise DescriptionError(f"Kubernetes {self.kubernetes} is not in the lab's table; it has {known}")
        if self.gates not in get_args(Gates):
            raise DescriptionError(f"gates are default or native, not {self.gates}")
        if self.gates == "native" and self.kubernetes != NEWEST:
            raise DescriptionError(f"the native gates came after Kubernetes {self.kubernetes}")
        there = PROGRAMS_OF[self.kubernetes]
        for component in self.components:
            if component not in COMPONENTS:
                raise DescriptionError(f"no component {component}; there are {', '.join(COMPONENTS)}")
            if component not in there:
                raise DescriptionError(f"the lab has no {component} of Kubernetes {self.kubernetes}")
        check_names(self.nodes)

    def program(self, component: str) -> str:
        """Name the program that a component is."""
        return PROGRAMS_OF[self.kubernetes][component]

    def programs(self) -> tuple[str, ...]:
        """Name the programs that the cluster needs, and kubectl, with which it is looked at."""
        return (*map(self.program, ("etcd", "apiserver", *self.components)), "kubectl")
