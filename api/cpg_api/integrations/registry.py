"""The integrations that are on, and the group that a pod has by them."""

from collections.abc import Collection, Mapping
from typing import Literal

from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.integrations import job, jobset, leaderworkerset, ray
from cpg_api.integrations.naming import Rule, read_mark
from cpg_api.integrations.trees import OwnerKind
from cpg_api.scheduling.names import ADOPT

Integration = Literal["jobset", "leaderworkerset", "raycluster", "job"]
DEFAULT_INTEGRATIONS: tuple[Integration, ...] = ()
"""None is on unless it is asked for."""

RULES: Mapping[str, tuple[tuple[str, str], Rule]] = {
    "jobset": (("batch", "Job"), jobset.derive),
    "leaderworkerset": (("apps", "StatefulSet"), leaderworkerset.derive),
    "raycluster": (("ray.io", "RayCluster"), ray.derive),
    "job": (("batch", "Job"), job.derive),
}
"""The API group and kind of the controller of the pods of each integration, and its rule."""

OWNERS: Mapping[str, OwnerKind] = {
    "jobset": jobset.KIND,
    "leaderworkerset": leaderworkerset.KIND,
    "raycluster": ray.KIND,
    "job": job.KIND,
}
"""The kind of owner of each integration."""


class Integrations:
    """Derives the groups of the pods of some schedulers."""

    def __init__(self, scheduler_names: Collection[str], names: Collection[str]) -> None:
        """Derive the groups of pods that name one of these schedulers, by the rules of these names."""
        self._scheduler_names = frozenset(scheduler_names)
        self._rules: dict[tuple[str, str], list[Rule]] = {}
        for name in names:
            controller, rule = RULES[name]
            self._rules.setdefault(controller, []).append(rule)

    def with_group(self, pod: Pod) -> Pod:
        """Return a pod with the group that follows from its owner, if there is one."""
        group = self.group_of(pod)
        return replace(pod, derived_group=group) if group is not None else pod

    def group_of(self, pod: Pod) -> str | None:
        """Return the name of the group that follows from the owner of a pod, or None."""
        if pod.spec.scheduler_name not in self._scheduler_names:
            return None
        controller = next((one for one in pod.metadata.owner_references if one.controller), None)
        if controller is None or read_mark(pod, ADOPT) == "false":
            return None
        group, _, _ = controller.api_version.rpartition("/")
        for rule in self._rules.get((group, controller.kind), ()):
            parts = rule(pod, controller)
            if parts is not None:
                return ".".join(parts)
        return None
