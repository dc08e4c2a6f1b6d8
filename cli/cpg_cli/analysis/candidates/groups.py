"""Changes of groups: a smaller minimum, a wider topology level or none, a group or members that are missing."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.compositepodgroup import CompositePodGroup, CompositePodGroupSpec
from cpg_api.scheduling.forest import Group, GroupKey
from cpg_api.scheduling.podgroup import PodGroup, PodGroupSpec
from cpg_api.scheduling.policies import (
    BasicSchedulingPolicy,
    CompositePodGroupSchedulingPolicy,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    WorkloadReference,
)
from cpg_api.scheduling.templates import template_positions
from cpg_cli.analysis.candidates.case import Case, Counterfactual, names_of, smallest
from cpg_cli.analysis.changes import ObjectChange, group_with_minimum, group_with_topology, pod_like
from cpg_cli.analysis.device_changes import with_claims_like
from cpg_engine.verdicts import GroupReport, Lack
from cpg_scheduler.inadmissible import GroupMissing

NO_LEVELS = ("kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/", "node.kubernetes.io/", "node-role.")
"""Beginnings of labels that are no levels of a topology."""
MAX_MEMBERS = 256


def missing_group(case: Case) -> Iterator[Counterfactual]:
    """Create the group that pods or groups name."""
    if not isinstance(case.problem, GroupMissing):
        return
    key = case.problem.group
    group = _made(case, key)
    if case.fits((change := ObjectChange(None, group, case.flavour),)):
        least = f" with minCount {group.minimum}" if isinstance(group, PodGroup) else ""
        yield Counterfactual("Group", f"{key} is created{least}", (change,))


def missing_members(case: Case) -> Iterator[Counterfactual]:
    """Create the pods that a group lacks."""
    report = case.path[-1] if case.path else None
    if report is None or report.lack is not Lack.MEMBERS or report.key.kind != PodGroup.kind:
        return
    lacking = report.counts.minimum - report.counts.scheduled - report.counts.remaining
    models = [pod for key in case.alike(report.key) for pod in case.members(key)]
    own = [pod for pod in models if case.cache.group_of(pod) == report.key]
    if not own or not 0 < lacking <= MAX_MEMBERS:
        return
    names = (f"{own[0].metadata.name}-more-{number}" for number in range(1, lacking + 1))
    if case.fits(changes := tuple(change for name in names for change in _further_pod(case, own[0], name))):
        yield Counterfactual(
            "Members",
            f"{lacking} more pod{'s' * (lacking != 1)} like {own[0].metadata.name} in {report.key.name}",
            changes,
        )


def _further_pod(case: Case, model: Pod, name: str) -> Iterator[ObjectChange]:
    """Yield the creation of a pod like another, and of the claims that are made for it."""
    pod, claims = with_claims_like(pod_like(model, name), model, case.cache.devices.claims)
    yield from (ObjectChange(None, claim) for claim in claims)
    yield ObjectChange(None, pod)


def smaller_minimum(case: Case) -> Iterator[Counterfactual]:
    """Take the largest smaller minimum that fits: of the group that blocks, else of one above it, else of all alike."""
    for report in reversed(case.path):
        if report.counts.minimum < 2 or report.key not in case.groups:
            continue
        for keys in _alone_and_alike(case, report.key):
            found = _smaller_minimum(case, report, keys)
            if found is not None:
                yield found
                return


def _smaller_minimum(case: Case, report: GroupReport, keys: Sequence[GroupKey]) -> Counterfactual | None:
    before = case.groups[report.key].minimum

    def changes(minimum: int) -> tuple[ObjectChange, ...]:
        return tuple(case.change_group(key, group_with_minimum(case.groups[key], minimum)) for key in keys)

    numbers = range(before - 1, 0, -1)
    minimum = smallest(numbers, lambda number: case.fits(changes(number)))
    if minimum is None:
        return None
    field = "minCount" if report.key.kind == PodGroup.kind else "minGroupCount"
    return Counterfactual("Minimum", f"{names_of(keys)} {field} {before} -> {minimum}", changes(minimum))


def wider_topology(case: Case) -> Iterator[Counterfactual]:
    """Require the next wider level of the topology that fits."""
    for key, level in _required(case):
        above = next((found for ancestor, found in _required(case) if _is_above(case, ancestor, key)), None)
        for wider in wider_levels(case, level, above):
            for keys in _alone_and_alike(case, key):
                if case.fits(changes := _with_topology(case, keys, wider)):
                    yield Counterfactual("Topology", f"{names_of(keys)} topology {level} -> {wider}", changes)
                    return


def without_topology(case: Case) -> Iterator[Counterfactual]:
    """Require no common domain any more."""
    for key, level in _required(case):
        for keys in _alone_and_alike(case, key):
            if case.fits(changes := _with_topology(case, keys, None)):
                yield Counterfactual("Topology", f"{names_of(keys)} without topology {level}", changes)
                return


def wider_levels(case: Case, level: str, above: str | None = None) -> list[str]:
    """Return the labels with domains around those of a level, the narrowest first, and narrower than ``above``."""
    nodes = [node for node in case.cache.snapshot.ledger.cluster.nodes if node is not None]
    values = _values(nodes)
    used = {found for _, found in _required(case)}
    known = len(set(values[level].values())) if level in values else 0
    limit = len(set(values[above].values())) if above in values else 1
    found = {
        label: count
        for label, of_node in values.items()
        if (label in used or not label.startswith(NO_LEVELS))
        and limit < (count := len(set(of_node.values()))) < known
        and _contains(of_node, values[level])
    }
    return sorted(found, key=lambda label: (-found[label], label))


def _values(nodes: Sequence[Node]) -> dict[str, dict[str, str]]:
    """Return the values of each label by node."""
    found: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for node in nodes:
        for label, value in node.metadata.labels.items():
            found[label][node.metadata.name] = value
    return found


def _contains(wider: dict[str, str], narrower: dict[str, str]) -> bool:
    """Return whether each domain of one label is inside one domain of another."""
    if not narrower.keys() <= wider.keys():
        return False
    outer: dict[str, str] = {}
    return all(outer.setdefault(value, wider[node]) == wider[node] for node, value in narrower.items())


def _required(case: Case) -> list[tuple[GroupKey, str]]:
    """Return the groups on the path that require a topology key, the one that blocks first."""
    constraints = [
        (report.key, case.groups[report.key].spec.scheduling_constraints)
        for report in reversed(case.path)
        if report.key in case.groups
    ]
    return [(key, found.topology[0].key) for key, found in constraints if found is not None and found.topology]


def _is_above(case: Case, ancestor: GroupKey, key: GroupKey) -> bool:
    places = [report.key for report in case.path]
    return places.index(ancestor) < places.index(key)


def _with_topology(case: Case, keys: Sequence[GroupKey], level: str | None) -> tuple[ObjectChange, ...]:
    return tuple(case.change_group(key, group_with_topology(case.groups[key], level)) for key in keys)


def _alone_and_alike(case: Case, key: GroupKey) -> list[list[GroupKey]]:
    """Return the groups to change: one, and if that is not enough, all that were made from its template."""
    alike = case.alike(key)
    return [[key], alike] if len(alike) > 1 else [[key]]


def _made(case: Case, key: GroupKey) -> Group:
    """Return a group that is missing, with as little as its members need."""
    meta = ObjectMeta(name=key.name, namespace=key.namespace, uid=str(key))
    if key.kind == PodGroup.kind:
        number = max(len(case.pods), 1)
        policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(number))
        return PodGroup(metadata=meta, spec=PodGroupSpec(scheduling_policy=policy, priority=case.pods[0].spec.priority))
    child = next(iter(case.groups.values()))
    spec = CompositePodGroupSpec(
        workload_ref=_parent_template(case, child),
        scheduling_policy=CompositePodGroupSchedulingPolicy(basic=BasicSchedulingPolicy()),
        priority_class_name=child.spec.priority_class_name,
        priority=child.spec.priority,
    )
    return CompositePodGroup(metadata=meta, spec=spec)


def _parent_template(case: Case, child: Group) -> WorkloadReference | None:
    """Return the template above that of a group; any name where it is unknown, because every parent needs one."""
    reference = child.spec.workload_ref
    if reference is None:
        return None
    workload = case.cache.workloads[case.flavour].get((child.metadata.namespace, reference.workload_name))
    position = template_positions(workload).get(reference.template_name) if workload is not None else None
    above = position.parent if position is not None else None
    return replace(reference, template_name=above or reference.template_name)
