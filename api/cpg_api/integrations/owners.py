"""The parts that several kinds of owners share: pod templates and the specs of Jobs."""

from typing import Any

from cpg_api.conditions import find_condition
from cpg_api.core.affinity import Affinity
from cpg_api.core.pod import Container, PodSpec, Toleration
from cpg_api.core.resources import ResourceList, ResourceRequirements
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.names import ADOPT
from cpg_api.structs import ApiStruct

FINISHED = ("Complete", "Completed", "Failed")
"""Conditions of Jobs and JobSets."""


class MemberTemplateSpec(ApiStruct, frozen=True):
    """The fields of a pod template that decide about groups."""

    scheduler_name: str = ""
    priority_class_name: str = ""
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    overhead: ResourceList | None = None
    resources: ResourceRequirements | None = None

    @property
    def needs(self) -> PodSpec:
        """Return what a pod of the template asks of its node, without affinity to other pods."""
        nodes = self.affinity and self.affinity.node_affinity
        return PodSpec(
            node_selector=self.node_selector,
            affinity=Affinity(node_affinity=nodes) if nodes else None,
            tolerations=self.tolerations,
            containers=self.containers and tuple(map(_needs, self.containers)),
            init_containers=self.init_containers and tuple(map(_needs, self.init_containers)),
            overhead=self.overhead,
            resources=self.resources,
        )


def _needs(container: Container) -> Container:
    resources = ResourceRequirements(requests=container.resources.requests)
    return Container(name=container.name, resources=resources, restart_policy=container.restart_policy)


class MemberTemplate(ApiStruct, frozen=True):
    """A pod template."""

    metadata: ObjectMeta = ObjectMeta()
    spec: MemberTemplateSpec = MemberTemplateSpec()

    def mark(self, key: str) -> str | None:
        """Return the value of a mark, which may be a label or an annotation."""
        return self.metadata.labels.get(key, self.metadata.annotations.get(key))

    def is_ours(self, schedulers: frozenset[str]) -> bool:
        """Return whether its pods name one of these schedulers, and are not to be left out."""
        return self.spec.scheduler_name in schedulers and self.mark(ADOPT) != "false"


class JobSpec(ApiStruct, frozen=True):
    """How many pods a Job runs."""

    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = ""
    suspend: bool = False
    scheduling: dict[str, Any] | None = None
    """Its own wishes about scheduling, from which Kubernetes 1.37 and later make its groups."""
    template: MemberTemplate = MemberTemplate()

    @property
    def size(self) -> int:
        """Return how many pods run at once."""
        return self.parallelism if self.completions is None else min(self.parallelism, self.completions)


class OwnerStatus(ApiStruct, frozen=True):
    """The conditions of an owner."""

    conditions: tuple[Condition, ...] | None = None

    @property
    def is_finished(self) -> bool:
        """Return whether the owner has completed or failed for good."""
        found = (find_condition(self.conditions, kind) for kind in FINISHED)
        return any(one is not None and one.status == "True" for one in found)
