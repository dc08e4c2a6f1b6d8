"""The objects of a plan, as users would write them."""

from collections.abc import Iterator
from typing import Any

from cpg_api.scheduling.names import INSTANTIATE, POD_GROUP_LABEL
from cpg_client import resources
from cpg_client.resources import Resource
from cpg_lab.devices import CLAIM_TEMPLATES
from cpg_simulation.nights.plan import DeviceUse, Flavour, GroupPlan, NodePlan, TreePlan

Manifest = dict[str, Any]
DISK = "example.com/disk"
DEDICATED = {"key": "example.com/dedicated", "effect": "NoSchedule"}
PRIORITIES = {"low": 10, "middle": 100, "high": 1000}
NEVER = "-never"
"""What names of PriorityClasses end with that do not preempt."""
GATE = {"name": "example.com/quota"}
NAMESPACE = "work"
DRIVER = "gpu.example.com"
DEVICE_CLASS, CLAIM_TEMPLATE, CLAIM_ENTRY = "gpu", "one-gpu", "gpu"
LEAVES = {"crd": resources.CPG_POD_GROUPS, "native": resources.NATIVE_POD_GROUPS}
INNER = {"crd": resources.CPG_COMPOSITE_POD_GROUPS, "native": resources.NATIVE_COMPOSITE_POD_GROUPS}
WORKLOADS = {"crd": resources.CPG_WORKLOADS, "native": resources.NATIVE_WORKLOADS}
TREE_LABEL, LEAF_LABEL = "example.com/tree", "example.com/leaf"
ZONE, RACK, HOSTNAME = "topology.kubernetes.io/zone", "example.com/rack", "kubernetes.io/hostname"
SPREAD = {"spread-nodes": HOSTNAME, "spread-zones": ZONE}
"""The topology keys of the traits that spread pods."""


def _manifest(resource: Resource, metadata: Manifest, **fields: Any) -> Manifest:
    if resource.namespaced:
        metadata = {"namespace": NAMESPACE, **metadata}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **fields}


def node(plan: NodePlan) -> Manifest:
    """Return a node that is ready."""
    amounts = {"cpu": f"{plan.cpu}m", "memory": "64Gi", "pods": str(plan.pods)}
    return _manifest(
        resources.NODES,
        {"name": plan.name, "labels": node_labels(plan)},
        spec={"taints": [DEDICATED]} if plan.is_dedicated else {},
        status={"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    )


def node_labels(plan: NodePlan) -> dict[str, str]:
    """Return the labels of a node."""
    return {
        HOSTNAME: plan.name,
        ZONE: plan.zone,
        RACK: plan.rack,
        DISK: "local" if plan.has_disk else "none",
    }


def priority_classes() -> Iterator[Manifest]:
    """Yield the PriorityClasses: each priority with and without preemption."""
    for name, value in PRIORITIES.items():
        for suffix, policy in (("", "PreemptLowerPriority"), (NEVER, "Never")):
            yield _manifest(
                resources.PRIORITY_CLASSES, {"name": f"{name}{suffix}"}, value=value, preemptionPolicy=policy
            )


def group(plan: GroupPlan, tree: TreePlan, flavour: Flavour) -> tuple[Resource, Manifest]:
    """Return a group and its resource."""
    resource = (LEAVES if plan.pods is not None else INNER)[flavour]
    spec: Manifest = {}
    if plan.parent:
        spec["parentCompositePodGroupName"] = plan.parent
    if plan.parent or plan.pods is None or tree.from_workload:
        spec["workloadRef"] = {"workloadName": tree.name, "templateName": plan.name}
    spec |= _policies(plan, tree)
    if tree.from_workload and flavour == "crd":
        spec = {key: spec[key] for key in ("parentCompositePodGroupName", "workloadRef") if key in spec}
    return resource, _manifest(resource, {"name": plan.name, "labels": {TREE_LABEL: tree.name}}, spec=spec)


def _policies(plan: GroupPlan, tree: TreePlan) -> Manifest:
    minimum = "minCount" if plan.pods is not None else "minGroupCount"
    found: Manifest = {
        "schedulingPolicy": {"basic": {}} if plan.gang is None else {"gang": {minimum: plan.gang}},
        "disruptionMode": {"all": {}} if plan.is_unit else {"single": {}},
    }
    if plan.key:
        found["schedulingConstraints"] = {"topology": [{"key": plan.key}]}
    return {**found, **_priority(tree)}


def _priority(tree: TreePlan) -> Manifest:
    return {"priorityClassName": tree.priority + (NEVER if tree.never_preempts else "")} if tree.priority else {}


def workload(tree: TreePlan, flavour: Flavour) -> tuple[Resource, Manifest]:
    """Return the Workload with the templates of a tree."""
    resource = WORKLOADS[flavour]
    top = next(group for group in tree.groups if not group.parent)
    composite, leaves = _templates(tree, [top])
    spec = {
        key: found for key, found in (("compositePodGroupTemplates", composite), ("podGroupTemplates", leaves)) if found
    }
    metadata: Manifest = {"name": tree.name, "labels": {TREE_LABEL: tree.name}}
    if tree.is_instantiated:
        metadata["annotations"] = {INSTANTIATE: "true"}
    return resource, _manifest(resource, metadata, spec=spec)


def _templates(tree: TreePlan, level: list[GroupPlan]) -> tuple[list[Manifest], list[Manifest]]:
    composites, leaves = [], []
    for plan in level:
        name = plan.name.removeprefix(f"{tree.name}-") if tree.is_instantiated else plan.name
        found: Manifest = {"name": name, **_policies(plan, tree)}
        if plan.pods is not None:
            leaves.append(found)
            continue
        below = _templates(tree, [group for group in tree.groups if group.parent == plan.name])
        for key, children in zip(("compositePodGroupTemplates", "podGroupTemplates"), below, strict=True):
            if children:
                found[key] = children
        composites.append(found)
    return composites, leaves


def objects_of(tree: TreePlan, flavour: Flavour) -> Iterator[tuple[Resource, Manifest]]:
    """Yield what a user creates for a tree beside its pods: groups, the Workload of their templates, and a budget."""
    if any(plan.parent or plan.pods is None for plan in tree.groups) or (tree.groups and tree.from_workload):
        yield workload(tree, flavour)
    for plan in () if tree.is_instantiated else tree.groups:
        yield group(plan, tree, flavour)
    if tree.budget is not None:
        yield budget(tree, tree.budget)
    yield from (shared_claim(plan, tree) for plan in tree.groups if plan.device == "shared")


def budget(tree: TreePlan, available: int) -> tuple[Resource, Manifest]:
    """Return the PodDisruptionBudget of the pods of a tree."""
    resource = resources.POD_DISRUPTION_BUDGETS
    spec = {"minAvailable": available, "selector": {"matchLabels": {TREE_LABEL: tree.name}}}
    return resource, _manifest(resource, {"name": tree.name, "labels": {TREE_LABEL: tree.name}}, spec=spec)


def device_objects() -> Iterator[tuple[Resource, Manifest]]:
    """Yield the class of all devices, and the template of claims for one of them."""
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    yield (
        resources.DEVICE_CLASSES,
        _manifest(resources.DEVICE_CLASSES, {"name": DEVICE_CLASS}, spec={"selectors": selectors}),
    )
    yield CLAIM_TEMPLATES, _manifest(CLAIM_TEMPLATES, {"name": CLAIM_TEMPLATE}, spec={"spec": _one_device()})


def resource_slice(plan: NodePlan, owner: Manifest) -> Manifest:
    """Return the devices of a node, which owns them."""
    node = {"apiVersion": "v1", "kind": "Node", "name": plan.name, "uid": owner["metadata"]["uid"]}
    spec = {
        "driver": DRIVER,
        "pool": {"name": plan.name, "generation": 1, "resourceSliceCount": 1},
        "nodeName": plan.name,
        "devices": [{"name": f"gpu-{number}"} for number in range(plan.devices)],
    }
    return _manifest(resources.RESOURCE_SLICES, {"name": plan.name, "ownerReferences": [node]}, spec=spec)


def shared_claim(plan: GroupPlan, tree: TreePlan) -> tuple[Resource, Manifest]:
    """Return the claim of all pods of a leaf."""
    metadata = {"name": f"{plan.name}-device", "labels": {TREE_LABEL: tree.name}}
    return resources.RESOURCE_CLAIMS, _manifest(resources.RESOURCE_CLAIMS, metadata, spec=_one_device())


def _one_device() -> Manifest:
    return {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": DEVICE_CLASS}}]}}


def pod(tree: TreePlan, plan: GroupPlan | None, name: str, flavour: Flavour) -> Manifest:
    """Return a pod of a leaf, or the single pod of a tree."""
    labels = {TREE_LABEL: tree.name}
    cpu = plan.cpu if plan is not None else tree.cpu
    container: Manifest = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": f"{cpu}m"}}}
    if "host-port" in tree.traits:
        container["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
    spec: Manifest = {
        "schedulerName": tree.scheduler,
        "terminationGracePeriodSeconds": tree.grace,
        "containers": [container],
        **_priority(tree),
        **_constraints(tree, plan),
        **_claims(plan.device if plan is not None else tree.device, plan),
    }
    if plan is not None and "follow" in tree.traits:
        labels[LEAF_LABEL] = plan.name
    if plan is not None and flavour == "native":
        spec["schedulingGroup"] = {"podGroupName": plan.name}
    elif plan is not None:
        labels[POD_GROUP_LABEL] = plan.name
    return _manifest(resources.PODS, {"name": name, "labels": labels}, spec=spec)


def _claims(device: DeviceUse, plan: GroupPlan | None) -> Manifest:
    source = {"resourceClaimTemplateName": CLAIM_TEMPLATE}
    if device == "shared" and plan is not None:
        source = {"resourceClaimName": f"{plan.name}-device"}
    return {"resourceClaims": [{"name": CLAIM_ENTRY, **source}]} if device else {}


def _constraints(tree: TreePlan, plan: GroupPlan | None) -> Manifest:
    spread = [
        {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {TREE_LABEL: tree.name}},
        }
        for trait, key in SPREAD.items()
        if trait in tree.traits
    ]
    related = {"affinity": _affinity(tree, plan), "topologySpreadConstraints": spread}
    found = {name: value for name, value in related.items() if value}
    if "select-disk" in tree.traits:
        found["nodeSelector"] = {DISK: "local"}
    if "tolerates" in tree.traits:
        found["tolerations"] = [{"key": DEDICATED["key"], "operator": "Exists"}]
    if "gated" in tree.traits:
        found["schedulingGates"] = [GATE]
    return found


def _affinity(tree: TreePlan, plan: GroupPlan | None) -> Manifest:
    """Return what pods require or prefer of other pods."""
    first = next((group.name for group in tree.groups if group.pods is not None), "")
    same_tree: Manifest = {"matchLabels": {TREE_LABEL: tree.name}}
    near, far = list[Manifest](), list[Manifest]()
    if "apart" in tree.traits:
        far.append({"labelSelector": same_tree, "topologyKey": HOSTNAME})
    if "alone" in tree.traits:
        others: Manifest = {"matchExpressions": [{"key": TREE_LABEL, "operator": "NotIn", "values": [tree.name]}]}
        far.append({"labelSelector": others, "topologyKey": HOSTNAME})
    if "together" in tree.traits:
        near.append({"labelSelector": same_tree, "topologyKey": RACK})
    if "follow" in tree.traits and plan is not None and plan.name != first:
        near.append({"labelSelector": {"matchLabels": {LEAF_LABEL: first}}, "topologyKey": RACK})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    found: Manifest = {
        name: {required: terms} for name, terms in (("podAffinity", near), ("podAntiAffinity", far)) if terms
    }
    if "prefer-zone" in tree.traits:
        term = {"weight": 10, "podAffinityTerm": {"labelSelector": same_tree, "topologyKey": ZONE}}
        found.setdefault("podAffinity", {})["preferredDuringSchedulingIgnoredDuringExecution"] = [term]
    return found
