"""The parts that several kinds of owners share: pod templates and the specs of Jobs."""

from cpg_api.conditions import find_condition
from cpg_api.meta import Condition, ObjectMeta
from cpg_api.scheduling.names import ADOPT
from cpg_api.structs import ApiStruct

FINISHED = ("Complete", "Completed", "Failed")
"""Conditions of Jobs and JobSets."""


class MemberTemplateSpec(ApiStruct, frozen=True):
    """The fields of a pod template that decide about groups."""

    scheduler_name: str = ""
    priority_class_name: str = ""


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
