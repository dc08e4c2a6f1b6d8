"""Changes of a whole cluster, for ``what-if`` and ``replay``: functions from one dump to another."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod, PodStatus
from cpg_api.manifests import to_manifest
from cpg_api.parsing import Rejected, convert_object
from cpg_api.quantity import QuantityError, nano_value
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import CompositePodGroupTemplate, PodGroupTemplate, Workload
from cpg_cli.analysis.changes import node_like
from cpg_cli.analysis.device_changes import claims_without, slices_by_node, slices_like
from cpg_cli.cluster.documents import Document
from cpg_cli.cluster.objects import GROUP_FIELDS
from cpg_cli.cluster.overrides import with_overrides
from cpg_cli.failures import usage_error
from cpg_client.flavours import NATIVE
from cpg_scheduler.debug.dump import Dump, GroupsOfFlavour

ADD_NODES = "such as --add-nodes '2 x gpu=8,rack=r1'"


def without_nodes(dump: Dump, names: Sequence[str]) -> Dump:
    """Return a cluster without some nodes.

    Their pods of our scheduler wait, as if their controllers had made them anew. Pods of other schedulers are gone. So
    are the devices of these nodes, and what the pods had allocated is free.
    """
    _check_nodes(dump, names)
    gone = frozenset(names)
    pods = []
    moved = set()
    for pod in dump.pods:
        if pod.spec.node_name not in gone:
            pods.append(pod)
            continue
        moved.add(pod.metadata.uid)
        if pod.spec.scheduler_name == dump.scheduler_name and not pod.is_terminal:
            pods.append(_anew(pod))
    return replace(
        dump,
        nodes=[node for node in dump.nodes if node.metadata.name not in gone],
        slices=[one for one in dump.slices if one.spec.node_name not in gone],
        device_claims=list(claims_without(dump.device_claims, moved)),
        pods=pods,
    )


def cordoned(dump: Dump, names: Sequence[str]) -> Dump:
    """Return a cluster in which some nodes take no further pods."""
    _check_nodes(dump, names)
    return _with_nodes(dump, lambda node: _cordoned(node) if node.metadata.name in names else node)


def without_taints(dump: Dump, keys: Sequence[str]) -> Dump:
    """Return a cluster without the taints of some keys."""
    known = {taint.key for node in dump.nodes for taint in node.spec.taints or ()}
    for key in keys:
        if key not in known:
            raise usage_error(f"no node has a taint {key}", f"there are: {', '.join(sorted(known)) or 'none'}")
    return _with_nodes(dump, lambda node: _untainted(node, keys))


def with_added_nodes(dump: Dump, texts: Sequence[str]) -> Dump:
    """Return a cluster with further nodes, each like one that exists but for what the text says, devices included."""
    added = [one for number, text in enumerate(texts) for one in _added(dump, text, number)]
    of_node = slices_by_node(dump.slices)
    slices = [copy for model, node in added for copy in slices_like(of_node.get(model, ()), node.metadata.name)]
    return replace(dump, nodes=[*dump.nodes, *(node for _, node in added)], slices=[*dump.slices, *slices])


def with_priority(dump: Dump, flavour: str, groups: Sequence[GroupKey], pods: Sequence[str], priority: int) -> Dump:
    """Return a cluster in which a tree, or a pod, has another priority."""
    chosen, uids = frozenset(groups), frozenset(pods)
    changed = [_prioritized(pod, priority) if pod.metadata.uid in uids else pod for pod in dump.pods]
    found = dump.groups.get(flavour)
    if not groups or found is None:
        return replace(dump, pods=changed)
    composites = [_reprioritized(one, chosen, priority) for one in found.composite_pod_groups]
    leaves = [_reprioritized(one, chosen, priority) for one in found.pod_groups]
    references = (
        one.spec.workload_ref
        for one in _all(found)
        if isinstance(one, PodGroup | CompositePodGroup) and _key(one) in chosen
    )
    names = {(groups[0].namespace, one.workload_name) for one in references if one is not None}
    workloads = [
        _with_templates(one, priority) if (one.metadata.namespace, one.metadata.name) in names else one
        for one in found.workloads
    ]
    new = GroupsOfFlavour(pod_groups=leaves, composite_pod_groups=composites, workloads=workloads)
    return replace(dump, pods=changed, groups={**dump.groups, flavour: new})


def with_settings(dump: Dump, namespace: str, settings: Sequence[str]) -> Dump:
    """Return a cluster in which groups and templates of a namespace have other fields, as ``--set`` says."""
    if not settings:
        return dump
    known = [(flavour, one) for flavour, groups in dump.groups.items() for one in _all(groups)]
    here = [(flavour, one) for flavour, one in known if one.metadata.namespace == namespace]
    documents = [Document("the dump", to_manifest(one, native=flavour == NATIVE)) for flavour, one in here]
    found = {
        flavour: {kind: list(getattr(groups, field)) for kind, field in GROUP_FIELDS.items()}
        for flavour, groups in dump.groups.items()
    }
    for (flavour, before), document in zip(here, with_overrides(documents, settings, ()), strict=True):
        after: Any = convert_object(document.plain, type(before))
        if isinstance(after, Rejected):
            raise usage_error(f"{document.name}: {after.problems[0]}")
        objects = found[flavour][type(before)]
        objects[objects.index(before)] = after
    groups = {
        flavour: GroupsOfFlavour(**{GROUP_FIELDS[kind]: objects for kind, objects in kinds.items()})
        for flavour, kinds in found.items()
    }
    return replace(dump, groups=groups)


def _all(groups: GroupsOfFlavour) -> Iterator[Any]:
    yield from groups.workloads
    yield from groups.composite_pod_groups
    yield from groups.pod_groups


def _key(group: PodGroup | CompositePodGroup) -> GroupKey:
    return GroupKey(group.kind, group.metadata.namespace, group.metadata.name)


def _anew(pod: Pod) -> Pod:
    meta = replace(pod.metadata, deletion_timestamp=None)
    status = PodStatus(phase="Pending", resource_claim_statuses=pod.status.resource_claim_statuses)
    return replace(pod, metadata=meta, spec=replace(pod.spec, node_name=""), status=status)


def _prioritized(pod: Pod, priority: int) -> Pod:
    return replace(pod, spec=replace(pod.spec, priority=priority, priority_class_name=""))


def _reprioritized(group: Any, chosen: frozenset[GroupKey], priority: int) -> Any:  # noqa: ANN401 - either kind
    if _key(group) not in chosen:
        return group
    return replace(group, spec=replace(group.spec, priority=priority, priority_class_name=""))


def _with_templates(workload: Workload, priority: int) -> Workload:
    return Workload(metadata=workload.metadata, spec=_each(workload.spec, priority), status=workload.status)


def _each(parent: Any, priority: int) -> Any:  # noqa: ANN401 - a spec or a composite template
    """Return templates with another priority, on all levels."""

    def changed(template: PodGroupTemplate | CompositePodGroupTemplate) -> Any:  # noqa: ANN401 - the same kind
        return replace(template, priority=priority, priority_class_name="")

    leaves, inner = parent.pod_group_templates, parent.composite_pod_group_templates
    return replace(
        parent,
        pod_group_templates=leaves and tuple(map(changed, leaves)),
        composite_pod_group_templates=inner and tuple(_each(changed(one), priority) for one in inner),
    )


def _with_nodes(dump: Dump, change: Callable[[Node], Node]) -> Dump:
    return replace(dump, nodes=[change(node) for node in dump.nodes])


def _cordoned(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, unschedulable=True))


def _untainted(node: Node, keys: Sequence[str]) -> Node:
    taints = tuple(taint for taint in node.spec.taints or () if taint.key not in keys)
    return replace(node, spec=replace(node.spec, taints=taints or None))


def _check_nodes(dump: Dump, names: Sequence[str]) -> None:
    known = {node.metadata.name for node in dump.nodes}
    for name in names:
        if name not in known:
            raise usage_error(f"there is no node {name}", "see `kubectl get nodes`")


def _added(dump: Dump, text: str, number: int) -> Iterator[tuple[str, Node]]:
    """Yield the nodes of one text: like the existing node, named first, that has most of what the text says."""
    first, times, rest = text.partition(" x ")
    if not times:
        first, rest = "1", text
    if not first.strip().isdecimal() or not dump.nodes:
        raise usage_error(f"--add-nodes {text}: does not begin with a number and x", ADD_NODES)
    resources, labels = _split(dump, rest, text)
    model = max(dump.nodes, key=lambda node: _likeness(node, resources, labels))
    for index in range(int(first)):
        node = node_like(model, f"added-{number + 1}-{index + 1}", labels)
        allocatable = {**(node.status.allocatable or {}), **resources}
        yield model.metadata.name, replace(node, status=replace(node.status, allocatable=allocatable))


def _likeness(node: Node, resources: Mapping[str, str], labels: Mapping[str, str]) -> tuple[int, int]:
    """Return how much of a text a node has, resources first: labels are easily changed."""
    has = node.status.allocatable or {}
    return sum(name in has for name in resources), sum(node.metadata.labels.get(key) == labels[key] for key in labels)


def _split(dump: Dump, text: str, whole: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the resources and labels of a text; both can be named by what stands behind their last slash."""
    resources = {name for node in dump.nodes for name in node.status.allocatable or ()}
    keys = {key for node in dump.nodes for key in node.metadata.labels}
    found: tuple[dict[str, str], dict[str, str]] = {}, {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, sign, value = part.partition("=")
        names = [sorted(_called(name, known)) for known in (resources, keys)]
        if not sign or len(names[0]) + len(names[1]) != 1:
            hint = f"resources: {', '.join(sorted(resources))}; labels: {', '.join(sorted(keys))}"
            raise usage_error(f"--add-nodes {whole}: {part!r} is no resource or label of a node", hint)
        if names[0]:
            _check_quantity(value, whole)
        target = found[0] if names[0] else found[1]
        target[(names[0] or names[1])[0]] = value
    return found


def _called(name: str, known: set[str]) -> set[str]:
    return {name} if name in known else {one for one in known if one.rpartition("/")[2] == name}


def _check_quantity(value: str, whole: str) -> None:
    try:
        nano_value(value)
    except QuantityError as error:
        raise usage_error(f"--add-nodes {whole}: {error}", ADD_NODES) from error
