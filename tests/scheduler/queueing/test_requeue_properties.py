"""Whatever happens in whatever order, no pod stays pending that could be placed.

The queue saves attempts by signatures and hints. After a while in which nothing happens, the engine is asked about
every pending unit, without these rules: it must find a placement for none.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.node import Taint
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector, ObjectMeta
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_engine.cycle import decide
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import composite, node, pod, pod_group
from cpg_scheduler.inadmissible import Inadmissible
from cpg_scheduler.testing.stage import Stage
from cpg_scheduler.units import build_unit, queue_key_of

Op: TypeAlias = tuple[Callable[..., None], tuple[Any, ...], dict[str, Any]]
TERM = PodAffinityTerm(topology_key="rack", label_selector=LabelSelector(match_labels={"app": "web"}))
WANTED = PodAffinity(required_during_scheduling_ignored_during_execution=(TERM,))
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "near": {"affinity": Affinity(pod_affinity=WANTED)},
    "apart": {"affinity": Affinity(pod_anti_affinity=WANTED)},
    "racked": {"node_selector": {"rack": "a"}},
}
GROUPS = (
    composite("tree", gang=2, key="rack"),
    pod_group("left", gang=2, parent="tree"),
    pod_group("right", gang=1, parent="tree"),
    pod_group("pair", gang=2),
    pod_group("racked", gang=2, key="rack"),
    pod_group("any", gang=None),
)
GROUP = st.sampled_from([*[""] * 6, "pair", "pair", "left", "right", "racked", "any", "missing"])


class Cluster:
    """A small cluster, and everything that may happen in it."""

    def __init__(self) -> None:
        self.stage = Stage(*GROUPS)
        self.serial = 0

    def put_node(self, name: str, cpu: int, rack: str, *, tainted: bool) -> None:
        """Add or change a node."""
        taints = (Taint(key="mine", effect="NoSchedule"),) if tainted else ()
        self.stage.put(node(name, cpu=cpu, labels={"rack": rack} if rack else {}, taints=taints))

    def delete_node(self, name: str) -> None:
        """Delete a node, if it exists."""
        if name in self.stage.cache.snapshot.ledger.cluster.row_of:
            self.stage.delete(node(name))

    def put_pod(self, name: str, cpu: int, *, group: str, spec: str, app: str) -> None:
        """Create a pod, in place of one with that name."""
        self.delete_pod(name)
        labels = {key: value for key, value in ((POD_GROUP_LABEL, group), ("app", app)) if value}
        self.serial += 1
        meta = ObjectMeta(name=name, namespace="default", uid=f"{name}-{self.serial}", labels=labels)
        self.stage.put(pod(name, cpu=cpu, meta=meta, **SPECS[spec]))

    def delete_pod(self, name: str) -> None:
        """Delete a pod, if it exists."""
        found = self.known(name)
        if found is not None:
            self.stage.delete(found)

    def end_pod(self, name: str, phase: str) -> None:
        """End a pod that has a node."""
        found = self.known(name)
        if found is not None and found.spec.node_name:
            self.stage.put(replace(found, status=replace(found.status, phase=phase)))

    def relabel(self, name: str, app: str) -> None:
        """Change the label that affinity selects."""
        found = self.known(name)
        if found is not None:
            labels = {key: value for key, value in found.metadata.labels.items() if key != "app"}
            labels |= {"app": app} if app else {}
            self.stage.put(replace(found, metadata=replace(found.metadata, labels=labels)))

    def set_minimum(self, minimum: int) -> None:
        """Raise or lower a minimum."""
        self.stage.put(pod_group("pair", gang=minimum))

    def fail_binds(self) -> None:
        """Run passes, and let all binds fail."""
        self.stage.run_passes()
        self.stage.fail_binds()

    def run(self, seconds: float) -> None:
        """Let time pass and the scheduler work."""
        self.stage.settle(seconds)

    def rest(self) -> None:
        """Let time pass until every unit that might fit has been attempted, and check those that are pending."""
        stage = self.stage
        for _ in range(8):
            stage.settle(60.0)
        for found in [*stage.cache.pods.values()]:
            root = stage.cache.unit_of(found)
            if not stage.cache.is_pending(found) or queue_key_of(stage.cache, root) is None:
                continue
            assert stage.status.pods.get(found.metadata.name), f"{found.metadata.name} is pending without a reason"
            attempt = build_unit(stage.cache, root)
            if not isinstance(attempt, Inadmissible):
                assert decide(stage.cache.snapshot, attempt.unit, SearchOptions()).binds == (), root

    def known(self, name: str) -> Pod | None:
        """Return a pod, if it exists."""
        pods = self.stage.cache.pods.values()
        return self.stage.pod(name) if name in {found.metadata.name for found in pods} else None


def op(
    act: Callable[..., None], *args: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
) -> st.SearchStrategy[Op]:
    """Return an operation."""
    return st.tuples(st.just(act), st.tuples(*args), st.fixed_dictionaries(named))


NODES = st.sampled_from(["n1", "n2", "n3"])
NAMES = st.sampled_from([f"p{number}" for number in range(8)])
APPS = st.sampled_from(["", "web"])
PUT_NODE = op(Cluster.put_node, NODES, st.integers(0, 4), st.sampled_from(["a", "b", ""]), tainted=st.booleans())
PUT_POD = op(Cluster.put_pod, NAMES, st.integers(1, 3), group=GROUP, spec=st.sampled_from([*SPECS, "plain"]), app=APPS)
OPS = st.one_of(
    PUT_NODE,
    PUT_POD,
    PUT_POD,
    op(Cluster.delete_node, NODES),
    op(Cluster.delete_pod, NAMES),
    op(Cluster.delete_pod, NAMES),
    op(Cluster.end_pod, NAMES, st.sampled_from(["Succeeded", "Failed"])),
    op(Cluster.relabel, NAMES, APPS),
    op(Cluster.set_minimum, st.integers(1, 3)),
    op(Cluster.fail_binds),
    op(Cluster.run, st.sampled_from([0.1, 2.0, 60.0])),
    op(Cluster.run, st.sampled_from([0.1, 2.0, 60.0])),
    op(Cluster.rest),
)
START = st.lists(st.one_of(PUT_NODE, PUT_POD, PUT_POD), min_size=12, max_size=16)


@settings(max_examples=150)
@given(start=START, rest=st.lists(OPS, min_size=10, max_size=25))
def test_no_pod_stays_pending_that_could_be_placed(start: list[Op], rest: list[Op]) -> None:
    """The engine finds no placement for any pending unit."""
    cluster = Cluster()
    for act, args, named in (*start, (Cluster.run, (0.0,), {}), *rest):
        act(cluster, *args, **named)
    cluster.rest()
