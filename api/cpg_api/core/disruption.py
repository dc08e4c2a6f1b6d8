"""Pod disruption budgets: how many pods of a set must stay available."""

from cpg_api.meta import LabelSelector, ObjectMeta
from cpg_api.structs import ApiStruct


class PodDisruptionBudgetSpec(ApiStruct, frozen=True):
    """The pods of a budget, and how many of them must stay available."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class PodDisruptionBudgetStatus(ApiStruct, frozen=True):
    """How many evictions are allowed now, and which pods are being evicted."""

    disruptions_allowed: int = 0
    disrupted_pods: dict[str, str] | None = None
    observed_generation: int = 0


class PodDisruptionBudget(ApiStruct, frozen=True):
    """A pod disruption budget."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
