"""Priority classes: the numbers behind the names."""

from cpg_api.meta import ObjectMeta
from cpg_api.structs import ApiStruct

PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
"""What whoever says nothing about preemption is taken to say, as by the API server."""


class PriorityClass(ApiStruct, frozen=True):
    """A name for a priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None

    @property
    def preempts(self) -> str:
        """Return the preemption policy, also where it is left empty."""
        return self.preemption_policy or PREEMPT_LOWER_PRIORITY
