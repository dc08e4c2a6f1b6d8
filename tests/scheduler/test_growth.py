"""Memory over weeks: whatever comes and goes, nothing of it stays."""

import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import (
    Affinity,
    NodeAffinity,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from cpg_api.core.disruption import PodDisruptionBudget, PodDisruptionBudgetSpec
from cpg_api.core.namespace import Namespace
from cpg_api.core.node import ContainerImage, Taint
from cpg_api.core.pod import Container, ContainerPort, Pod, PodStatus, SchedulingGate, Toleration
from cpg_api.core.resources import ResourceRequirements
from cpg_api.meta import LabelSelector, ObjectMeta
from cpg_api.scheduling.names import POD_GROUP_LABEL
from cpg_client.stores import Added, Deleted
from cpg_engine.testing import storage_builders as storage
from cpg_engine.testing.builders import (
    composite,
    inner_template,
    leaf_template,
    metadata,
    node,
    pod,
    pod_group,
    priority_class,
    workload,
)
from cpg_engine.testing.container_sizes import container_sizes
from cpg_scheduler.preemption.events import CorrectionDue
from cpg_scheduler.testing.stage import CRD, KubeObject, Stage

LIMITS = ("MAX_STALE", "MAX_CACHED", "MAX_IDLE", "MAX_NAMESPACES", "MAX_TAINT_SETS")
"""How the names of constants begin that limit what stays for a while."""
ROUNDS = 30
SLACK = 12
"""What may be there in one round and not in another; a leak of one entry in each round is twice as much."""
HOST, ZONE = "kubernetes.io/hostname", "zone"


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a scheduler with three nodes and a running pod that stay, which keeps next to nothing for later."""
    for module in [found for name, found in sys.modules.items() if name.startswith("cpg_")]:
        for name in [name for name in vars(module) if name.startswith(LIMITS)]:
            monkeypatch.setattr(module, name, 2)
    nodes = [node(f"perm-{i}", cpu=8, labels={ZONE: "perm", HOST: f"perm-{i}"}) for i in range(3)]
    return Stage(*nodes, pod("stays", cpu=1, node_name="perm-0", priority=10**6))


def meta(name: str, n: int, **labels: str) -> ObjectMeta:
    """Return the metadata of an object of a round, in a namespace that is new."""
    return metadata(f"{name}-{n}", namespace=f"ns-{n}", **labels)


def member(name: str, n: int, group: str, **fields: Any) -> Pod:
    """Return a pod in a group of a round."""
    return pod(name, meta=meta(name, n, **{POD_GROUP_LABEL: f"{group}-{n}"}), **fields)


def nodes_of(n: int) -> Iterator[KubeObject]:
    """Yield nodes as an autoscaler creates them, and their storage."""
    labels = {HOST: f"node-{n}", ZONE: f"zone-{n}", f"key-{n}": "x"}
    taints = [Taint(key=f"taint-{n}", effect="PreferNoSchedule")]
    found = node(f"node-{n}", cpu=8, more={f"example.com/dev-{n}": 4}, labels=labels, taints=taints)
    images = (ContainerImage(names=(f"image-{n}",), size_bytes=10**8),)
    yield replace(found, status=replace(found.status, images=images))
    yield storage.csi_node(f"node-{n}", limit=3, driver=f"driver-{n}")
    yield storage.storage_class(f"class-{n}")
    yield storage.volume(f"volume-{n}", storage_class=f"class-{n}", at={HOST: [f"node-{n}"]})
    yield replace(storage.claim(f"claim-{n}", storage_class=f"class-{n}"), metadata=meta("claim", n))


def pods_of(n: int) -> Iterator[Pod]:
    """Yield pods of all sorts: some are placed, some never can be, some are invalid, some evict others."""
    app = LabelSelector(match_labels={f"app-{n}": "a"})
    terms = {key: PodAffinityTerm(topology_key=key, label_selector=app) for key in (HOST, ZONE)}
    prefers = PreferredSchedulingTerm(
        preference=NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(ZONE, "In", (f"z-{n}",)),)), weight=1
    )
    affinity = Affinity(
        node_affinity=NodeAffinity(preferred_during_scheduling_ignored_during_execution=(prefers,)),
        pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(terms[ZONE],)),
        pod_anti_affinity=PodAffinity(
            preferred_during_scheduling_ignored_during_execution=(WeightedPodAffinityTerm(2, terms[HOST]),)
        ),
    )
    spread = TopologySpreadConstraint(5, ZONE, "DoNotSchedule", app)
    device = ResourceRequirements(requests={f"example.com/dev-{n}": 1})
    specs: dict[str, dict[str, Any]] = {
        "near": {"affinity": affinity, "cpu": 0.1},
        "spread": {"topology_spread_constraints": (spread,), "tolerations": (Toleration(f"taint-{n}"),)},
        "port": {"containers": (Container(f"c{n}", f"image-{n}", ports=(ContainerPort(host_port=1 + n),)),)},
        "device": {"containers": (Container("main", resources=device),)},
        "claims": {"volumes": storage.using(f"claim-{n}")},
        "inline": {"volumes": storage.inline(f"driver-{n}", f"invented-{n}")},
        "missing": {"volumes": storage.using(f"missing-{n}")},
        "ephemeral": {"volumes": storage.ephemeral(f"v-{n}")},
        "huge": {"cpu": 1000, "tolerations": (Toleration(f"t-{n}", "Exists"),)},
        "nowhere": {"node_selector": {f"x-{n}": "1"}},
        "malformed": {"cpu": "x1"},
        "gated": {"scheduling_gates": (SchedulingGate("g"),)},
        "foreign": {"cpu": 0.1},
        "lost": {"node_name": f"gone-{n}"},
        "low": {"cpu": 5, "priority": 1, "node_name": "perm-1"},
        "urgent": {"cpu": 7.5, "priority": 1000 + n},
    }
    for name, spec in specs.items():
        found = pod(name, meta=meta(name, n, **{f"app-{n}": "a"}), **spec)
        if name == "foreign":
            status = PodStatus(phase="Pending", nominated_node_name="perm-2")
            found = replace(found, spec=replace(found.spec, scheduler_name="another"), status=status)
        yield found


def groups_of(n: int) -> Iterator[KubeObject]:
    """Yield trees with their pods: placed, waiting for room, for a domain, for an ancestor, and a victim as a whole."""
    groups = (
        pod_group("plain", gang=2, key=ZONE, preferred=f"prefers-{n}"),
        pod_group("big", gang=2),
        pod_group("nodomain", gang=1, key=f"key-of-no-node-{n}"),
        pod_group("orphan", parent=f"noroot-{n}", workload=f"w-{n}", template="leaf"),
        composite("root", gang=2, key=ZONE, workload=f"w-{n}", template="root"),
        pod_group("one", gang=2, parent=f"root-{n}", workload=f"w-{n}", template="leaf"),
        pod_group("two", gang=1, parent=f"root-{n}", workload=f"w-{n}", template="leaf"),
        pod_group("victim", all_=True, gang=1),
    )
    yield from (replace(found, metadata=meta(found.metadata.name, n)) for found in groups)
    templates = [inner_template("root", [leaf_template("leaf", gang=1)], gang=2)]
    yield replace(workload(templates, name=f"w-{n}"), metadata=meta("w", n))
    yield from (member(f"{group}-{i}", n, group, cpu=0.1) for group in ("plain", "one") for i in range(2))
    yield from (member(name, n, name, cpu=0.1) for name in ("nodomain", "orphan", "two", "nogroup"))
    yield from (member(f"big-{i}", n, "big", cpu=900) for i in range(2))
    yield member("victim-0", n, "victim", cpu=1, node_name="perm-2")


def run_round(stage: Stage, n: int, *, with_nodes: bool) -> None:
    """Let objects come in some order, be scheduled, and go in another, with a fault or two in between."""
    chance = random.Random(n)  # noqa: S311 - no secret
    selector = LabelSelector(match_labels={f"app-{n}": "a"})
    objects: list[KubeObject] = [*(nodes_of(n) if with_nodes else ()), *groups_of(n), *pods_of(n)]
    objects.append(PodDisruptionBudget(metadata=meta("budget", n), spec=PodDisruptionBudgetSpec(selector=selector)))
    objects.append(priority_class(f"class-{n}", n))
    namespace = Namespace(metadata=ObjectMeta(name=f"ns-{n}", labels={f"label-{n}": "x"}))
    stage.cache.on_namespace(Added(namespace.metadata.key, namespace))
    stage.victims_linger = n % 3 == 0
    chance.shuffle(objects)
    for found in objects:
        stage.put(found)
    stage.run_passes()
    if n % 4 < 2:
        stage.fail_binds(is_outdated=n % 4 == 0)
    stage.run_passes()
    if n % 2:
        stage.recover()
    for seconds in (1.0, 100.0, 1000.0) if n % 5 else ():
        stage.settle(seconds)
    chance.shuffle(objects)
    for found in objects:
        if (type(found).__name__, CRD, found.metadata.key) in stage._objects:
            stage.delete(found)
        if chance.random() < 0.2:
            stage.run_passes()
    stage.cache.on_namespace(Deleted(namespace.metadata.key, namespace))
    for _ in range(2):
        stage.report(CorrectionDue())
        stage.settle(700.0)


def largest_sizes(stage: Stage, rounds: range, *, with_nodes: bool) -> Counter[str]:
    """Return for each container the most elements that it had at the end of a round."""
    largest = Counter[str]()
    fakes = (stage.binder, stage.executor, stage.events, stage.status, stage.log)
    for n in rounds:
        run_round(stage, n, with_nodes=with_nodes)
        if n % 3 == 0:
            largest |= container_sizes((stage.cache, stage.loop, stage.metrics), without=[stage, *fakes])
    return largest


@pytest.mark.parametrize("with_nodes", [True, False])
def test_nothing_stays_of_objects_that_come_and_go(stage: Stage, *, with_nodes: bool) -> None:
    """Nodes, pods and groups with names, labels, resources and selectors of their own leave nothing behind."""
    before = largest_sizes(stage, range(ROUNDS), with_nodes=with_nodes)
    after = largest_sizes(stage, range(ROUNDS, 3 * ROUNDS), with_nodes=with_nodes)
    assert len(stage.cache.pods) == 1
    grown = {path: (size, after[path]) for path, size in before.items() if after[path] > 1.1 * size + SLACK}
    assert grown == {}  # what was empty in each of the first rounds is an array that is computed on demand
