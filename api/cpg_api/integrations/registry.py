"""The integrations that are on, and the group that a pod has by them."""

from collections.abc import Collection, Mapping
from typing import Literal, get_args

from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.integrations import deployment, disaggregatedset, job, jobset, leaderworkerset, ray, statefulset, trainjob
from cpg_api.integrations.custom import CustomKind
from cpg_api.integrations.naming import PODS, Rule, read_mark
from cpg_api.integrations.trees import OwnerKind, no_tree
from cpg_api.meta import OwnerReference
from cpg_api.scheduling.names import ADOPT

Integration = Literal["jobset", "leaderworkerset", "disaggregatedset", "raycluster", "job", "deployment", "statefulset"]
DEFAULT_INTEGRATIONS: tuple[Integration, ...] = get_args(Integration)
"""All are on: pods take part by their schedulerName."""

RULES: Mapping[str, tuple[tuple[str, str], Rule]] = {
    "jobset": (("batch", "Job"), jobset.derive),
    "disaggregatedset": (("apps", "StatefulSet"), disaggregatedset.derive),
    "leaderworkerset": (("apps", "StatefulSet"), leaderworkerset.derive),
    "raycluster": (("ray.io", "RayCluster"), ray.derive),
    "job": (("batch", "Job"), job.derive),
    "deployment": (("apps", "ReplicaSet"), deployment.derive),
    "statefulset": (("apps", "StatefulSet"), statefulset.derive),
}
"""The API group and kind of the controller of the pods of each integration, and its rule; the first that fits wins."""

OWNERS: Mapping[str, OwnerKind] = {
    "jobset": jobset.KIND,
    "leaderworkerset": leaderworkerset.KIND,
    "disaggregatedset": disaggregatedset.KIND,
    "raycluster": ray.KIND,
    "job": job.KIND,
    "deployment": deployment.KIND,
    "statefulset": statefulset.KIND,
}
"""The kind of owner of each integration."""

OTHERS: Mapping[str, tuple[OwnerKind, ...]] = {
    "jobset": (trainjob.KIND,),
    "disaggregatedset": (replace(leaderworkerset.KIND, shape=no_tree),),
}
"""The kinds that an integration reads beside its own. They get no trees by it."""


def owner_kinds(names: Collection[str], custom: Collection[CustomKind] = ()) -> list[OwnerKind]:
    """Return the kinds of owners that these integrations read."""
    others = {kind.kind: kind for name in names for kind in OTHERS.get(name, ())}
    own = {OWNERS[name].kind: OWNERS[name] for name in names}
    return [*(others | own).values(), *(kind.owner_kind for kind in custom)]


def owner_of_group(group: str) -> str:
    """Return kind and name of the owner from which the name of a group was derived, such as ``JobSet train``.

    Only owners with one group may have dots in their names.
    """
    prefix, *parts = group.split(".")
    owner = ".".join(parts[:-1]) if parts[-1] == PODS else parts[0]
    kinds = (kind.kind for kind in OWNERS.values() if kind.prefix == prefix)
    return f"{next(kinds, prefix)} {owner}"


NOT_DERIVED = ("", "")


class Integrations:
    """Derives the groups of the pods of some schedulers."""

    def __init__(
        self, scheduler_names: Collection[str], names: Collection[str], custom: Collection[CustomKind] = ()
    ) -> None:
        """Derive the groups of pods that name one of these schedulers, by the rules of these names and kinds."""
        self._scheduler_names = frozenset(scheduler_names)
        self._rules: dict[tuple[str, str], list[tuple[str, Rule]]] = {}
        for name in (one for one in RULES if one in names):
            controller, rule = RULES[name]
            self._rules.setdefault(controller, []).append((OWNERS[name].kind, rule))
        for kind in custom:
            self._rules.setdefault((kind.group, kind.kind), []).append((kind.kind, kind.derive))

    def with_group(self, pod: Pod) -> Pod:
        """Return a pod with the group that follows from its owner, if there is one."""
        group, owner = self._derived(pod)
        return replace(pod, derived_group=group, derived_owner=owner) if group else pod

    def group_of(self, pod: Pod) -> str | None:
        """Return the name of the group that follows from the owner of a pod, or None."""
        return self._derived(pod)[0] or None

    def _derived(self, pod: Pod) -> tuple[str, str]:
        """Return the names of the group and of the owner by the first rule that applies, or empty ones."""
        owners = pod.metadata.owner_references
        if owners and pod.spec.scheduler_name in self._scheduler_names:
            for controller in owners:
                if controller.controller and read_mark(pod, ADOPT) != "false":
                    return self._by_rules(pod, controller)
        return NOT_DERIVED

    def _by_rules(self, pod: Pod, controller: OwnerReference) -> tuple[str, str]:
        group, _, _ = controller.api_version.rpartition("/")
        for kind, rule in self._rules.get((group, controller.kind), ()):
            parts = rule(pod, controller)
            if parts is not None:
                return ".".join(parts), _owner(kind, pod, controller)
        return NOT_DERIVED


def _owner(kind: str, pod: Pod, controller: OwnerReference) -> str:
    """Return kind and UID of the owner of this kind, or nothing where its pods do not have the UID."""
    if kind == jobset.KIND.kind:
        uid = pod.metadata.labels.get(jobset.UID, "")
    else:
        uid = controller.uid if controller.kind == kind else ""
    return f"{kind}/{uid}" if uid else ""
