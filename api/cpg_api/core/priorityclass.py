"""Priority classes: the numbers behind the names."""

from cpg_api.meta import ObjectMeta
from cpg_api.structs import ApiStruct

PREEMPT_LOWER_PRIORITY = "PreemptLowerPriority"
"""The default preemption policy of Kubernetes."""


class PriorityClass(ApiStruct, frozen=True):
    """A name for a priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None

    @property
    def preempts(self) -> str:
        """Return the preemption policy, or the default where it is empty."""
        return self.preemption_policy or PREEMPT_LOWER_PRIORITY
