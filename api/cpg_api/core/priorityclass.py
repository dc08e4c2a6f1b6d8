"""Priority classes: the numbers behind the names."""

from cpg_api.meta import ObjectMeta
from cpg_api.structs import ApiStruct


class PriorityClass(ApiStruct, frozen=True):
    """A name for a priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: int = 0
    global_default: bool = False
    preemption_policy: str | None = None
