"""Pods: every field that scheduling, preemption and health read."""

from msgspec import field

from cpg_api.core.affinity import Affinity, TopologySpreadConstraint
from cpg_api.core.resources import ResourceList, ResourceRequirements
from cpg_api.core.volumes import PodVolume
from cpg_api.meta import ObjectMeta
from cpg_api.structs import ApiStruct

TERMINAL_PHASES = frozenset({"Succeeded", "Failed"})
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of a mirror pod: the kubelet runs it from a file and shows it to the API server."""


class ContainerPort(ApiStruct, frozen=True):
    """A port of a container; scheduling reads host ports alone."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = field(name="hostIP", default="")
    protocol: str = "TCP"


class Container(ApiStruct, frozen=True):
    """A container or an init container; an init container with ``restartPolicy: Always`` is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] | None = None
    restart_policy: str | None = None


class Toleration(ApiStruct, frozen=True):
    """A toleration of taints; an empty key with Exists matches every taint."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class SchedulingGate(ApiStruct, frozen=True):
    """A gate: a pod with one is not scheduled yet."""

    name: str = ""


class SchedulingGroup(ApiStruct, frozen=True):
    """The native membership of a pod. API servers without the feature gate drop it silently."""

    pod_group_name: str | None = None


class PodResourceClaim(ApiStruct, frozen=True):
    """A device claim of the pod (dynamic resource allocation)."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class PodSpec(ApiStruct, frozen=True):
    """The requests and constraints of a pod."""

    node_name: str = ""
    scheduler_name: str = ""
    scheduling_group: SchedulingGroup | None = None
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: ResourceList | None = None
    resources: ResourceRequirements | None = None
    host_network: bool = False
    volumes: tuple[PodVolume, ...] | None = None
    resource_claims: tuple[PodResourceClaim, ...] | None = None
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None


class PodCondition(ApiStruct, frozen=True):
    """One observation about a pod."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class ContainerStatus(ApiStruct, frozen=True):
    """The resources that the node has granted a container. They differ from the spec during an in-place resize."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: ResourceList | None = None


class PodResourceClaimStatus(ApiStruct, frozen=True):
    """The claim that was made from a template for an entry of ``spec.resourceClaims``; None where none is needed."""

    name: str = ""
    resource_claim_name: str | None = None


class ContainerExtendedResourceRequest(ApiStruct, frozen=True):
    """The request of a special claim that stands for an extended resource of a container."""

    container_name: str = ""
    resource_name: str = ""
    request_name: str = ""


class PodExtendedResourceClaimStatus(ApiStruct, frozen=True):
    """The special claim for the extended resources of a pod that are devices."""

    request_mappings: tuple[ContainerExtendedResourceRequest, ...] | None = None
    resource_claim_name: str = ""


class PodStatus(ApiStruct, frozen=True):
    """The observed state of a pod."""

    phase: str = ""
    conditions: tuple[PodCondition, ...] | None = None
    nominated_node_name: str = ""
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] | None = None
    extended_resource_claim_status: PodExtendedResourceClaimStatus | None = None


class Pod(ApiStruct, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    derived_group: str = ""
    """The group that follows from its owner, where it names none (``cpg_api.integrations``). No field of the API."""
    derived_owner: str = ""
    """Kind and UID of that owner, as far as the pod has them: ``JobSet/...``. No field of the API."""
    is_nominated_by_other: bool = False
    """Whether a component other than the scheduler has nominated it. No field of the API: the managed fields say so."""

    @property
    def is_terminal(self) -> bool:
        """Return whether the pod has ended, with success or not."""
        return self.status.phase in TERMINAL_PHASES

    @property
    def is_terminating(self) -> bool:
        """Return whether the pod is being deleted."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_mirror(self) -> bool:
        """Return whether it is a mirror pod. The kubelet creates a deleted one again."""
        return MIRROR in self.metadata.annotations
