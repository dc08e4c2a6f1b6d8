"""A simulated cluster for the engine: objects come and go, and a trivial queue has the engine decide about each root.

The queue has no backoff and no events, only the total order. Trees that a scheduler would hold back are held back here,
too: those without their root, with a gated pod, or invalid.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.scheduling.expected import missing_pods, read_expected_pods
from cpg_api.scheduling.forest import Anchor, Forest, Group, GroupKey, Tree, key_of
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.validation import ValidationContext, validate, validate_members
from cpg_engine.cluster.requests import RequestError
from cpg_engine.cycle import decide
from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import GroupPods, Unit, pod_unit, tree_unit
from cpg_engine.preemption.plan import plan_preemption
from cpg_engine.preemption.values import PreemptionPlan
from cpg_engine.snapshot import Snapshot, new_snapshot
from cpg_engine.testing.listed_budgets import ListedBudgets
from cpg_engine.testing.oracle import Situation, violations
from cpg_engine.testing.scenario_forms import BudgetForm
from cpg_engine.testing.scenario_wording import eviction_text
from cpg_engine.testing.victim_units import budgets_of, never_preempts, units_of

NO_SURROUNDINGS = ValidationContext(workloads={}, classes=PriorityClasses({}))


class RootUnit(Struct, frozen=True):
    """What is decided about as a whole: a tree, or a pod of its own."""

    name: str
    order: tuple[int, str, str]
    tree: Tree | None
    pods: tuple[Pod, ...]


class ClusterSimulator:
    """Objects, the snapshot that mirrors them, and the last decision about each root.

    Where no pod of a root can be placed, preemption is planned; the victims are deleted at once, with their reason.
    """

    def __init__(self, options: SearchOptions) -> None:
        """Start with an empty cluster."""
        self.options = options
        self.snapshot: Snapshot = new_snapshot(options.weights)
        self.nodes: dict[str, Node] = {}
        self.groups: dict[GroupKey, Group] = {}
        self.pods: dict[str, Pod] = {}
        self.budgets: dict[str, BudgetForm] = {}
        self.evicted: dict[str, str] = {}
        self.nominated: set[str] = set()
        """The pods with reserved room after their victims were deleted."""
        self.plans: dict[str, PreemptionPlan] = {}
        self.decisions: dict[str, Decision] = {}
        self.held: dict[str, str] = {}
        self.refused: dict[str, str] = {}
        self.broken: list[str] = []
        self.reported: dict[str, str] | None = None
        """Status, reason and message of each object's condition, by name; None where no scheduler writes them."""

    @classmethod
    def of(cls, situation: Situation, options: SearchOptions | None = None) -> "ClusterSimulator":
        """Return a simulator with the objects of a situation."""
        simulator = cls(options or SearchOptions())
        for node in situation.nodes:
            simulator.put_node(node)
        for found in situation.tree.nodes:
            simulator.put_group(found.group)
        for pod in situation.pods:
            simulator.put_pod(pod)
        return simulator

    # Objects.

    def put_node(self, node: Node) -> None:
        """Add a node or change it."""
        self.nodes[node.metadata.name] = node
        self.snapshot.ledger.put_node(node)

    def put_group(self, group: Group) -> None:
        """Add a group or change it."""
        self.groups[key_of(group)] = group

    def put_pod(self, pod: Pod) -> None:
        """Add a pod or change it; a running pod with malformed requests is not counted."""
        self.pods[pod.metadata.name] = pod
        if not pod.spec.node_name or pod.is_terminal:
            self.snapshot.ledger.remove_pod(pod.metadata.uid)
            return
        try:
            self.snapshot.ledger.put_pod(pod, pod.spec.node_name)
        except RequestError as error:
            self.refused[pod.metadata.name] = str(error)

    def put_budget(self, name: str, budget: BudgetForm) -> None:
        """Add a budget or change it."""
        self.budgets[name] = budget

    def delete(self, name: str) -> bool:
        """Delete all objects of a name; return whether there were any."""
        keys = [key for key in self.groups if key.name == name]
        for key in keys:
            del self.groups[key]
        node, pod = self.nodes.pop(name, None), self.pods.pop(name, None)
        if node is not None:
            self.snapshot.ledger.remove_node(name)
        if pod is not None:
            self.snapshot.ledger.remove_pod(pod.metadata.uid)
        return bool(keys) or node is not None or pod is not None

    # Deciding.

    def settle(self, *, once: bool = False) -> None:
        """Decide about every root in order, again and again until nothing is bound or evicted."""
        for last in (self.decisions, self.broken, self.plans, self.evicted, self.nominated):
            last.clear()
        while True:
            roots = self.roots()
            changes = sum([self._decide(root) or self._preempt(root) for root in roots])
            if once or not changes:
                return

    def roots(self) -> list[RootUnit]:
        """Return what can be decided about, in order; record why the rest is held."""
        self.held.clear()
        found = [root for root in (*self._trees(), *self._single()) if not self._holds(root)]
        return sorted(found, key=lambda root: root.order)

    def situation(self, tree: Tree) -> Situation:
        """Return the situation as the oracle models it."""
        return Situation(nodes=tuple(self.nodes.values()), pods=tuple(self.pods.values()), tree=tree)

    def unit(self, root: RootUnit) -> Unit:
        """Return the unit as the engine sees it."""
        if root.tree is None:
            return pod_unit(root.pods[0], self.snapshot.ledger)
        members = {key: self._members(key, pods) for key, pods in self._by_group().items()}
        return tree_unit(root.tree, members, self.snapshot.ledger)

    def _members(self, key: GroupKey, pods: Iterable[Pod]) -> GroupPods:
        """Return the pods of a group, and those that it expects; room for these is needed by the first pod alone."""
        found, group = _members(pods), self.groups.get(key)
        expected = read_expected_pods(group) if group is not None else ()
        missing = missing_pods(key, expected, (*found.pending, *found.scheduled))
        needed = 0 if found.scheduled else sum(entry.count for entry in expected)
        return replace(found, expected=missing, needed=needed)

    def _trees(self) -> Iterator[RootUnit]:
        by_group = self._by_group()
        for tree in Forest.of(self.groups.values()).trees():
            pods = [(node.key, pod) for node in tree.nodes for pod in by_group.pop(node.key, ())]
            problems = validate(tree, NO_SURROUNDINGS) or validate_members(tree, pods, NO_SURROUNDINGS)
            if tree.anchor is Anchor.MISSING:
                self.held[tree.anchor_key.name] = "missing"
            elif problems:
                self.held[tree.anchor_key.name] = "invalid: " + ", ".join(problem.fault for problem in problems)
            else:
                root = tree.root
                order = (-(root.spec.priority or 0), root.metadata.creation_timestamp or "", root.metadata.name)
                members = tuple(pod for _, pod in pods)
                yield RootUnit(name=root.metadata.name, order=order, tree=tree, pods=members)
        self.held.update({key.name: "missing" for key in by_group})

    def _single(self) -> Iterator[RootUnit]:
        for name, pod in self.pods.items():
            found = membership(pod)
            if found.problem is not None:
                self.held[name] = f"invalid: {found.problem}"
            elif found.group is None:
                order = (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", name)
                yield RootUnit(name=name, order=order, tree=None, pods=(pod,))

    def _holds(self, root: RootUnit) -> bool:
        """Return whether there is nothing to decide, or a gate holds it."""
        waiting = [pod for pod in root.pods if _is_pending(pod)]
        if any(pod.spec.scheduling_gates for pod in waiting):
            self.held[root.name] = "gated"
            return True
        return not waiting

    def _by_group(self) -> dict[GroupKey, list[Pod]]:
        found: dict[GroupKey, list[Pod]] = {}
        for pod in self.pods.values():
            if name := membership(pod).group:
                found.setdefault(GroupKey(PodGroup.kind, pod.metadata.namespace, name), []).append(pod)
        return found

    def decide(self, root: RootUnit) -> Decision:
        """Decide about one root without performing it."""
        return decide(self.snapshot, self.unit(root), self.options)

    def _decide(self, root: RootUnit) -> int:
        """Decide about one root and perform the decision; check it against the oracle's rules."""
        unit = self.unit(root)
        for refused in (refused for node in unit.nodes for refused in node.invalid):
            name = next(pod.metadata.name for pod in root.pods if pod.metadata.uid == refused.uid)
            self.refused[name] = "; ".join(str(problem) for problem in refused.problems)
        decision = self.decisions[root.name] = decide(self.snapshot, unit, self.options)
        binds = {bind.uid: bind.node for bind in decision.binds}
        if root.tree is not None:
            self.broken.extend(violations(self.situation(root.tree), binds))
        for pod in root.pods:
            if pod.metadata.uid in binds:
                self.put_pod(placed(pod, binds[pod.metadata.uid]))
        return len(binds)

    def plan(self, root: RootUnit) -> PreemptionPlan:
        """Plan preemption for a root without evicting anything."""
        priority = (root.tree.root if root.tree else root.pods[0]).spec.priority or 0
        return plan_preemption(
            self.snapshot,
            self.unit(root),
            self.options,
            priority=priority,
            units=units_of(self.groups.values(), self.pods.values()),
            budgets=ListedBudgets(budgets_of(self.budgets, self.pods.values())),
        )

    def _preempt(self, root: RootUnit) -> int:
        """Evict the victims for a root with no placed pods; return how many pods that is."""
        if never_preempts(root.pods) or not any(_is_pending(self.pods[pod.metadata.name]) for pod in root.pods):
            return 0
        found = self.plans[root.name] = self.plan(root)
        reasons = {uid: eviction_text(eviction.reason) for eviction in found.evictions for uid in eviction.unit.pods}
        deleted = {
            pod.metadata.name: reasons[pod.metadata.uid] for pod in self.pods.values() if pod.metadata.uid in reasons
        }
        if deleted:
            kept = {nomination.uid for nomination in found.nominations}
            self.nominated.update(pod.metadata.name for pod in root.pods if pod.metadata.uid in kept)
        for name in deleted:
            self.delete(name)
        self.evicted.update(deleted)
        return len(deleted)


def placed(pod: Pod, node_name: str) -> Pod:
    """Return the pod as it runs on a node."""
    return replace(pod, spec=replace(pod.spec, node_name=node_name), status=replace(pod.status, phase="Running"))


def _is_pending(pod: Pod) -> bool:
    return not pod.spec.node_name and not pod.is_terminal


def _members(pods: Iterable[Pod]) -> GroupPods:
    found = list(pods)
    return GroupPods(
        pending=[pod for pod in found if _is_pending(pod)],
        scheduled=[
            pod for pod in found if pod.status.phase == "Succeeded" or (pod.spec.node_name and not pod.is_terminal)
        ],
    )
