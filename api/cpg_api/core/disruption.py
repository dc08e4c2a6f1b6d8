"""Pod disruption budgets: how many pods of a set preemption should leave alone."""

from cpg_api.meta import LabelSelector, ObjectMeta
from cpg_api.structs import ApiStruct


class PodDisruptionBudgetSpec(ApiStruct, frozen=True):
    """The pods, and how many of them are to stay."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True):
    """How many may go now, and who is going already."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None
    observed_generation: int = 0


class PodDisruptionBudget(ApiStruct, frozen=True):
    """A pod disruption budget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
