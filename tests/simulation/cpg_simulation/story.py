"""Tells a night in words: what was planned, what failed, and what was written."""

from collections.abc import Iterator

from cpg_simulation.apiserver.values import Write
from cpg_simulation.nights.manifests import Manifest
from cpg_simulation.nights.plan import (
    Action,
    ChangeMinimum,
    DeletePods,
    Fault,
    Finish,
    GroupPlan,
    LiftGates,
    Night,
    RecreateGroup,
    Remove,
    Scale,
    Submit,
    TreePlan,
)

MEDDLING = {
    "nominate": "nominates a pod of {} to a node",
    "unlabel": "takes a pod of {} out of its group",
    "relabel": "moves a pod of {} to another group of it",
    "remove-finalizers": "removes the finalizers of a group of {}",
    "delete-workload": "deletes the Workload of {}",
    "delete-all": "deletes all pods of the namespace",
}
TRAITS = {
    "select-disk": "on nodes with a local disk",
    "apart": "each pod on another node",
    "prefer-zone": "preferably in one zone",
    "host-port": "with a host port",
    "tolerates": "also on dedicated nodes",
    "gated": "with scheduling gates",
    "alone": "on nodes without pods of other trees",
    "together": "all in one rack",
    "follow": "in racks with a pod of the first leaf",
    "spread-nodes": "spread over the nodes",
    "spread-zones": "spread over the zones",
}


DEVICES = {"": "", "own": " with a device", "shared": " with one device for all"}


def beginning(night: Night) -> Iterator[str]:
    """Yield the cluster in words."""
    nodes = ", ".join(
        f"{node.name} ({node.cpu / 1000:g} CPU, {node.pods} pods, {node.zone}, {node.rack}"
        f"{', local disk' if node.has_disk else ''}{', dedicated' if node.is_dedicated else ''}"
        f"{f', {node.devices} devices' if node.devices else ''})"
        for node in night.nodes
    )
    yield f"seed {night.seed}, {night.flavour} groups; nodes: {nodes}"
    if night.competitor:
        yield "a kube-scheduler places pods of its own on the same nodes"


def plan_lines(night: Night) -> list[tuple[float, str]]:
    """Return the planned events in words, by their time."""
    events = [(action.at, f"user: {action_text(action)}") for action in night.actions]
    events += [(fault.at, f"fault: {fault_text(fault)}") for fault in night.faults]
    events.append((night.seconds, "all faults are over"))
    return sorted(events)


def action_text(action: Action) -> str:
    """Return what a user does."""
    match action:
        case Submit(tree=tree):
            text = f"creates {tree_text(tree)}{', in any order' if action.shuffled else ''}"
        case Finish():
            text = f"ends the containers of {action.tree}"
        case Remove():
            text = f"deletes {action.tree}"
        case DeletePods():
            text = f"deletes {action.count} pods of {action.tree}{' at once' if action.force else ''}"
        case RecreateGroup():
            text = f"deletes a group of {action.tree} and creates it again after {action.seconds:.1f} s"
        case ChangeMinimum():
            text = f"sets the minimum of {action.group} to {action.gang}"
        case Scale():
            text = f"sets the pods of {action.group} to {action.pods}"
        case LiftGates():
            text = f"lifts the gates of {action.tree}"
        case _:
            text = MEDDLING[action.kind].format(action.tree)
    return text


def tree_text(tree: TreePlan) -> str:
    """Return a tree in words."""
    priority = f", priority {tree.priority}" if tree.priority else ""
    never = ", never preempts" if tree.never_preempts else ""
    traits = "".join(f", {TRAITS[trait]}" for trait in tree.traits)
    budget = "" if tree.budget is None else f", at least {tree.budget} pods available"
    common = f"{priority}{never}{traits}{budget}, grace {tree.grace} s"
    if not tree.groups:
        return f"pod {tree.name} of {tree.cpu / 1000:g} CPU{DEVICES[tree.device]} for {tree.scheduler}{common}"
    groups = "; ".join(_group_text(group) for group in tree.groups)
    workload = ", policies from a Workload" if tree.from_workload else ""
    made = ", groups from a Workload" if tree.is_instantiated else workload
    return f"tree {tree.name}{made}{common}: {groups}"


def _group_text(group: GroupPlan) -> str:
    policy = "basic" if group.gang is None else f"gang {group.gang}"
    parts = [f"{group.name} {policy}"]
    if group.pods is not None:
        parts.append(f"{group.pods} x {group.cpu / 1000:g} CPU{DEVICES[group.device]}")
    if group.parent:
        parts.append(f"in {group.parent}")
    if group.key:
        parts.append(f"within one {group.key.rpartition('/')[2]}")
    if group.is_unit:
        parts.append("disrupted as a whole")
    return ", ".join(parts)


def fault_text(fault: Fault) -> str:
    """Return a fault in words."""
    subject = fault.target or "every process"
    sort = {"any": "requests"}.get(fault.requests, fault.requests)
    share = "" if fault.share == 1 else f"{fault.share:.0%} of "
    told = {
        "lose-request": f"{share}{sort} of {subject} are lost on the way",
        "lose-answer": f"answers to {share}{sort} of {subject} are lost",
        "cut-answer": f"answers to {share}{sort} of {subject} are cut",
        "refuse": f"{share}{sort} of {subject} are refused with 403",
        "throttle": f"{share}{sort} of {subject} are refused with 429",
        "fail": f"{share}{sort} of {subject} fail with a 5xx status",
        "delay": f"{share}{sort} of {subject} take up to {fault.amount:g} s longer",
        "kill": f"{subject} is killed",
        "terminate": f"{subject} is asked to end",
        "stop": f"{subject} is stopped",
        "suspend": f"the machine of {subject} is suspended",
        "slow": f"the machine of {subject} is {fault.amount:g} times slower",
        "skew-clock": f"the wall clock of {subject} is wrong by {fault.amount:.0f} s",
        "fast-clock": f"the clocks of {subject} run {fault.amount:g} times as fast",
        "cut-off": f"{subject} cannot reach the API server",
        "lag-watches": f"watches of {subject} are up to {fault.amount:g} s late, each in its own way",
        "cut-watches": f"watches of {subject} break",
        "reset": f"all connections of {subject} break",
        "restart": "the API server restarts",
        "compact": "etcd is compacted",
        "restore": f"etcd is restored from {fault.amount:.1f} s before",
        "refuse-admission": f"admission refuses our {sort}",
        "vanish": f"{subject} vanishes",
        "relabel": f"{subject} is moved to another rack",
        "cordon": f"{subject} is cordoned",
        "taint": f"{subject} is tainted",
        "shrink": f"{subject} has only half a CPU",
        "touch-pods": "a controller annotates the pods without a node every second",
        "reject-pods": f"the kubelet of {subject} rejects new pods",
        "stop-controllers": "the controllers of pods are stopped",
        "replace": f"what one of the {fault.trigger} is about is replaced by another object of its name",
    }[fault.kind]
    lasting = fault.kind not in {"cut-watches", "reset", "compact", "terminate", "replace"}
    since = f", {fault.delay:g} s after the next of the {fault.trigger}" if fault.trigger else ""
    return f"{told}{since}, for {fault.seconds:g} s" if lasting else f"{told}{since}"


def write_text(write: Write) -> str | None:
    """Return a write in words, or None if it is of no interest."""
    subject = f"{write.resource.partition('.')[0].removesuffix('s')} {write.name}"
    if write.resource.startswith(("leases", "events")):
        return None
    old, new = write.old, write.new
    if old is None or new is None:
        return f"{write.user} creates {subject}" if new else f"{write.user} deletes {subject}: it is gone"
    return f"{write.user} {_change_text(subject, old, new)}"


def _change_text(subject: str, old: Manifest, new: Manifest) -> str:
    if old["spec"].get("nodeName") != new["spec"].get("nodeName"):
        return f"binds {subject} to {new['spec']['nodeName']}"
    if new["metadata"].get("deletionTimestamp") and not old["metadata"].get("deletionTimestamp"):
        return f"deletes {subject}: it ends"
    changes = [*_changed_conditions(old, new), *_changed_fields(old, new)]
    return f"changes {subject}{': ' if changes else ''}{'; '.join(changes)}"


def _changed_conditions(old: Manifest, new: Manifest) -> Iterator[str]:
    before, after = _conditions(old), _conditions(new)
    for kind, (status, reason, message) in after.items():
        if before.get(kind) != (status, reason, message):
            yield f"{kind}={status} {reason} ({message[:160]})"
    yield from (f"no {kind} any more" for kind in before if kind not in after)


def _conditions(found: Manifest) -> dict[str, tuple[str, str, str]]:
    status = found.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return {
        one["type"]: (one.get("status", ""), one.get("reason", ""), one.get("message", "") or "")
        for one in conditions or ()
    }


def _changed_fields(old: Manifest, new: Manifest) -> Iterator[str]:
    before, after = old.get("status"), new.get("status")
    if isinstance(before, dict) and isinstance(after, dict):
        for name in ("phase", "nominatedNodeName"):
            if before.get(name) != after.get(name):
                yield f"{name} {after.get(name) or 'empty'}"
        yield from _changed_devices(before, after)
    if old.get("spec") != new.get("spec"):
        yield "another spec"
    first, second = old["metadata"], new["metadata"]
    if isinstance(first, dict) and isinstance(second, dict) and first.get("finalizers") != second.get("finalizers"):
        yield f"finalizers {second.get('finalizers') or 'none'}"


def _changed_devices(before: Manifest, after: Manifest) -> Iterator[str]:
    """Yield what has changed of the status of a claim."""
    if before.get("allocation") != after.get("allocation"):
        results = (after.get("allocation") or {}).get("devices", {}).get("results", ())
        yield f"devices {', '.join(one['pool'] + '/' + one['device'] for one in results) or 'none'}"
    if before.get("reservedFor") != after.get("reservedFor"):
        yield f"reserved for {', '.join(one['name'] for one in after.get('reservedFor') or ()) or 'nothing'}"
