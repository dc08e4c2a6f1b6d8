"""The spec of a cluster: version, gates, components, nodes. Plain data, validated on construction."""

from dataclasses import dataclass
from typing import Literal, get_args

from cpg_lab.errors import DescriptionError
from cpg_lab.nodes import NodePool, check_names
from cpg_lab.versions import COMPONENTS as PROGRAMS_OF

Gates = Literal["default", "native"]
Component = Literal["controller-manager", "scheduler", "kwok"]
Workload = Literal["jobset", "lws", "trainer", "ray", "kueue"]

COMPONENTS: tuple[Component, ...] = get_args(Component)
WORKLOADS: tuple[Workload, ...] = get_args(Workload)
NEWEST = "1.37"


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """One cluster: etcd, the API server, and the named components."""

    kubernetes: str = NEWEST
    gates: Gates = "default"
    """`native` enables the alpha API of pod groups in every component."""
    further_gates: tuple[str, ...] = ()
    """Feature gates of Kubernetes that are on beside those."""
    components: tuple[Component, ...] = ()
    """`scheduler` is kube-scheduler, with which ours is compared."""
    workloads: tuple[Workload, ...] = ()
    """Workload controllers of other projects. The controller manager comes with them, and JobSet with the trainer."""
    nodes: tuple[NodePool, ...] = ()
    fsync: bool = False
    """Whether etcd syncs to disk; only a crash of the machine needs it."""
    watch_cache: bool = True
    """Whether the API server serves watches from memory; if not, etcd serves them, and compaction drops history."""
    node_lifecycle: bool = False
    """Whether nodes send leases, and the controller manager taints nodes that stop."""
    service_accounts: bool = False
    """Whether pods get the token of their service account, as on a real node; they wait for the account."""
    controllers: tuple[str, ...] = ()
    """The controllers that the controller manager runs; none for all."""
    audit: bool = False
    """Whether the API server logs all writes, each with its user, to `Cluster.audit_log`."""
    max_requests_inflight: int = 0
    max_mutating_requests_inflight: int = 0
    """Limits of the API server on concurrent requests; zero keeps its defaults."""

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
        for workload in self.workloads:
            if workload not in WORKLOADS:
                raise DescriptionError(f"no workload controller {workload}; there are {', '.join(WORKLOADS)}")
        check_names(self.nodes)

    def started(self) -> tuple[str, ...]:
        """Return the components that the cluster runs, with those that others need."""
        needed = ("controller-manager",) if self.workloads else ()
        jobset = ("jobset",) if "trainer" in self.workloads else ()
        return tuple(dict.fromkeys(("etcd", "apiserver", *self.components, *needed, *jobset, *self.workloads)))

    def program(self, component: str) -> str:
        """Return the program of a component."""
        return PROGRAMS_OF[self.kubernetes][component]

    def programs(self) -> tuple[str, ...]:
        """Return the programs that the cluster needs, kubectl included."""
        return (*map(self.program, self.started()), "kubectl")
