"""What has to hold of groups at the end of a night: their status, their finalizers, and that they exist."""

from collections import Counter
from collections.abc import Callable, Iterator

from cpg_api.conditions import FINAL_ONCE_TRUE
from cpg_api.scheduling.forest import GroupKey, key_of
from cpg_api.scheduling.health import HEALTHY, HealthReason
from cpg_api.scheduling.names import DISRUPTION_TARGET, FINALIZER, GROUP, INSTANTIATE, INSTANTIATED, REASON_INVALID
from cpg_api.scheduling.partial_release import PARTIAL
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.protection import names_group
from cpg_api.scheduling.replicas import with_replicas
from cpg_api.scheduling.templates import walk_templates
from cpg_api.scheduling.workload import Workload
from cpg_simulation.checks.cluster import ObservedCluster, is_deleting
from cpg_simulation.checks.group_states import GroupState, raw_group
from cpg_simulation.checks.night_end import QUIET_SECONDS, NightEnd
from cpg_simulation.checks.second_opinion import agree
from cpg_simulation.checks.values import Finding, Rule


def _each(check: Callable[[NightEnd, GroupState], Iterator[str]]) -> Callable[[NightEnd], Iterator[Finding]]:
    """Return a check of all groups that are not being deleted."""

    def check_all(end: NightEnd) -> Iterator[Finding]:
        for state in end.states:
            if not is_deleting(state.raw):
                for problem in check(end, state):
                    yield Finding((str(state.key),), f"{state.key} {problem}")

    return check_all


def _counts(_: NightEnd, state: GroupState) -> Iterator[str]:
    """Yield the counts and the domain in a status that are wrong."""
    wanted = {"pods": state.pods, "groups": state.groups, "domain": state.domain}
    for field, value in wanted.items() if state.api_group == GROUP else ():
        if state.status.get(field) != value:
            yield f"has status.{field}={state.status.get(field)}, and should have {value}"


def _health(_: NightEnd, state: GroupState) -> Iterator[str]:
    """Yield what the condition Healthy, and on roots Partial, say wrongly."""
    healthy, partial = state.condition(HEALTHY), state.condition(PARTIAL)
    should = ("True" if state.reason == HealthReason.MINIMUM_MET else "False", state.reason)
    says = (healthy["status"], healthy.get("reason")) if healthy is not None else ("nothing", "")
    if says != should:
        yield f"says Healthy={says[0]} ({says[1]}), and should say {should[0]} ({should[1]})"
    if (partial is not None) != (state.is_root and state.reason == HealthReason.PARTIAL):
        yield f"{'says' if partial else 'does not say'} that it is partial, and its state is {state.reason}"


def _placed(end: NightEnd, state: GroupState) -> Iterator[str]:
    """Yield that a group has its minimum and does not say that it was placed, or says another reason than it should.

    A tree may become invalid before the scheduler has reported that it was placed. Then it says what is wrong.
    """
    if state.members and not any(map(end.cluster.is_ours, state.members)):
        return
    condition = next(filter(None, map(state.condition, sorted(FINAL_ONCE_TRUE))), None)
    status, reason = (condition["status"], condition.get("reason")) if condition is not None else ("nothing", "")
    expected = end.opinion.groups.get(state.key)
    is_invalid = expected is not None and expected.reason == REASON_INVALID
    is_met = {state.reason, state.root_reason} == {HealthReason.MINIMUM_MET}
    if is_met and status != "True" and not is_invalid:
        yield f"has its minimum, and says InitiallyScheduled={status} ({reason})"
    elif expected is not None and status != "True" and not agree(reason, expected.reason):
        yield f"says {reason}, and a scheduler that starts now would say {expected.reason} ({expected.message})"


def _disrupted(_: NightEnd, state: GroupState) -> Iterator[str]:
    """Yield that a group says that it is evicted, and is complete in a tree that is complete.

    A tree is evicted as a whole until it is placed again, also a group in it whose pods had succeeded before.
    """
    condition = state.condition(DISRUPTION_TARGET)
    is_met = state.reason == state.root_reason == HealthReason.MINIMUM_MET
    is_complete = is_met and all(pod.node for pod in state.members)
    if condition is not None and condition["status"] == "True" and is_complete:
        yield f"has its minimum, and says {DISRUPTION_TARGET}: {condition.get('message')}"


def _finalizers(end: NightEnd) -> Iterator[Finding]:
    """Yield the groups without our finalizer, and the deleted ones that have it although nothing needs them."""
    for api_group, store in end.cluster.stores.items():
        for group in sorted(store, key=key_of):
            key = key_of(group)
            raw = raw_group(end.cluster, api_group, key)
            has_ours = FINALIZER in (raw["metadata"].get("finalizers") or ())
            if is_deleting(raw):
                if has_ours and not _is_needed(end.cluster, api_group, key):
                    yield Finding((str(key),), f"{key} is deleted, nothing needs it, and it still has our finalizer")
            elif not has_ours and (api_group == GROUP or not isinstance(group, PodGroup)):
                yield Finding((str(key),), f"{key} has no finalizer of ours")


def _is_needed(cluster: ObservedCluster, api_group: str, key: GroupKey) -> bool:
    """Return whether a child or a pod needs a group; groups that are each other's parents need none."""
    forest = cluster.stores[api_group].forest
    if any(child not in forest.tree_of(child).cycle for child in forest.children.get(key, ())):
        return True
    return any(not pod.has_ended and names_group(pod.pod) for pod in cluster.members(key, api_group))


def _instantiated(end: NightEnd) -> Iterator[Finding]:
    """Yield the templates of Workloads that ask for their groups and have fewer or more of them."""
    for api_group, workloads in end.cluster.workloads.items():
        for workload in map(with_replicas, workloads.values()):
            if workload is None or workload.metadata.annotations.get(INSTANTIATE) != "true":
                continue
            made = _made(end.cluster, api_group, workload)
            for template, number in _wanted(workload).items() if _says_complete(workload) else ():
                if made[template] != number:
                    what = f"Workload {workload.metadata.key}"
                    yield Finding((what,), f"{what} has {made[template]} groups of template {template}, not {number}")


def _made(cluster: ObservedCluster, api_group: str, workload: Workload) -> Counter[str]:
    """Return how many groups of each template a Workload owns."""
    owned = (
        group
        for group in cluster.stores[api_group]
        if group.metadata.deletion_timestamp is None
        and any(owner.uid == workload.metadata.uid for owner in group.metadata.owner_references)
    )
    return Counter(group.spec.workload_ref.template_name for group in owned if group.spec.workload_ref is not None)


def _says_complete(workload: Workload) -> bool:
    """Return whether a Workload says that it has its groups, or says nothing; otherwise it says what is in the way."""
    if workload.metadata.annotations.get(INSTANTIATED, "True").partition(":")[0] != "True":
        return False
    conditions = workload.status.conditions or ()
    return all(one.status == "True" for one in conditions if one.type == "Instantiated")


def _wanted(workload: Workload) -> Counter[str]:
    """Return how many groups each template of a Workload makes."""
    found: Counter[str] = Counter()
    for place in walk_templates(workload):
        above = found[place.parent] if place.parent is not None else 1
        found[place.template.name] = above * (1 if place.template.replicas is None else place.template.replicas)
    return found


def _leases(end: NightEnd) -> Iterator[Finding]:
    """Yield the programs whose lease no living process holds."""
    for role in ("scheduler", "operator"):
        state = end.leases.state(role, end.now)
        if any(process.startswith(role) for process in end.living) and state.holder not in end.living | {"?"}:
            holder = state.holder or "no process"
            yield Finding((f"Lease {role}",), f"the lease of the {role} is held by {holder}")
        elif state.holder in end.living and state.until < end.now:
            yield Finding((f"Lease {role}",), f"{state.holder} has not renewed its lease since {state.since:.3f} s")


def _settled(name: str, promise: str, check: Callable[[NightEnd], Iterator[Finding]]) -> Rule:
    text = f"After {QUIET_SECONDS:g} quiet seconds {promise}"
    return Rule(name=name, promise=text, check=check, seconds=QUIET_SECONDS)


COUNTS = _settled(
    "Counts and domains are right",
    "the status of each group has the counts of its pods and children, and their domain.",
    _each(_counts),
)
HEALTH = _settled(
    "Health is right", "Healthy says whether a group has its minimum, and Partial marks half a gang.", _each(_health)
)
PLACED = _settled(
    "Groups say whether they were placed",
    "InitiallyScheduled is True where the minimum of a valid tree is met, and else has the reason that a new scheduler "
    "would give.",
    _each(_placed),
)
DISRUPTED = _settled(
    "No complete group calls itself a victim",
    "no group with its minimum in a tree with its minimum has DisruptionTarget.",
    _each(_disrupted),
)
FINALIZERS = _settled(
    "Finalizers are there and end", "each group has our finalizer, and no deleted one that nothing needs.", _finalizers
)
WORKLOADS_INSTANTIATED = _settled(
    "Workloads have their groups",
    "a Workload that asks for its groups has them, or says what is in the way.",
    _instantiated,
)
LEASES_HELD = _settled("One living process leads", "each lease is held and renewed by a process that runs.", _leases)
