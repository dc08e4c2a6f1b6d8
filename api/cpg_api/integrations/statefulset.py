"""StatefulSet: a gang of all its pods if they are created together, and of one pod if they are created in order."""

from msgspec.structs import replace

from cpg_api.core.pod import Pod
from cpg_api.integrations import leaderworkerset
from cpg_api.integrations.naming import PODS, Parts, read_mark, whole_name
from cpg_api.integrations.owners import MemberTemplate
from cpg_api.integrations.policy import MIN_COUNT, OwnerPolicy
from cpg_api.integrations.trees import OwnerKind, Shape, flat
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.names import GANG
from cpg_api.structs import ApiStruct

PREFIX = "statefulset"
PARALLEL = "Parallel"
ONE_BY_ONE = f"{MIN_COUNT}: with podManagementPolicy OrderedReady a pod waits for the one before it, so it has to be 1"


class StatefulSetSpec(ApiStruct, frozen=True):
    """The pods of a StatefulSet."""

    replicas: int = 1
    pod_management_policy: str = ""
    template: MemberTemplate = MemberTemplate()


class StatefulSetStatus(ApiStruct, frozen=True):
    """How far a rollout is."""

    ready_replicas: int = 0
    """After ``reduce`` 0 or 1."""
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(ApiStruct, frozen=True):
    """The fields of a StatefulSet that decide about its group."""

    metadata: ObjectMeta = ObjectMeta()
    spec: StatefulSetSpec = StatefulSetSpec()
    status: StatefulSetStatus = StatefulSetStatus()

    @property
    def replaces_running_pods(self) -> bool:
        """Return whether a rollout replaces pods that run. Those of the old template may be no members."""
        status = self.status
        return status.ready_replicas > 0 and status.current_revision != status.update_revision


def derive(pod: Pod, controller: OwnerReference) -> Parts | None:
    """Return the parts for a pod that opts in; LeaderWorkerSets have their own."""
    if leaderworkerset.NAME in pod.metadata.labels or read_mark(pod, GANG) != "true":
        return None
    return whole_name(PREFIX, controller.name, PODS)


def shape(owner: StatefulSet, policy: OwnerPolicy, schedulers: frozenset[str]) -> Shape:
    """Return the template of the gang of a StatefulSet."""
    template = owner.spec.template
    is_ours = template.is_ours(schedulers) and template.mark(GANG) == "true"
    if not is_ours or leaderworkerset.NAME in template.metadata.labels:
        return Shape()
    if whole_name(PREFIX, owner.metadata.name, PODS) is None:
        return Shape()
    problems: tuple[str, ...] = ()
    minimum = policy.min_count or max(owner.spec.replicas, 1)
    if owner.spec.pod_management_policy != PARALLEL:
        problems = (ONE_BY_ONE,) if (policy.min_count or 1) > 1 else ()
        minimum = 1
    elif owner.replaces_running_pods:
        minimum = 1
    found = flat(PODS, minimum, policy, template.spec.priority_class_name)
    return Shape(found.spec, problems)


def reduce(owner: StatefulSet) -> StatefulSet:
    """Return a StatefulSet without its spec and status if it does not opt in, so nothing of them causes a reconcile."""
    if owner.spec.template.mark(GANG) != "true":
        return StatefulSet(owner.metadata)
    return replace(owner, status=replace(owner.status, ready_replicas=min(owner.status.ready_replicas, 1)))


KIND = OwnerKind(
    PREFIX,
    "apps",
    ("v1",),
    "statefulsets",
    "StatefulSet",
    StatefulSet,
    shape,
    selector=f"!{leaderworkerset.NAME}",
    reduce=reduce,
)
