"""Malformed objects never stop a cycle: they get a problem, and the others are scheduled."""

import json
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.parsing import Rejected, parse_object
from cpg_api.scheduling.compositepodgroup import CompositePodGroup
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_engine.testing.strategies import BEARS_RED, RED, cases

HUGE = 2**70
NUMBERS = st.sampled_from([0, 1, -1, 2**31, 2**63 - 1, -(2**63), HUGE, -HUGE])
QUANTITIES = st.one_of(NUMBERS, st.sampled_from(["", "1", "-1", "many", "9E", "1e400", "0.5", "1n", "٣", 1e308, -0.5]))
WORDS = st.sampled_from(["", "a", "rack", "A/B/c", "x" * 300, "é", "In", "Exists", "Gt", "Nope", "NoSchedule", "n1"])
REQUESTS = st.dictionaries(
    st.sampled_from(["cpu", "memory", "pods", "", "example.com/gpu", "ephemeral-storage"]), QUANTITIES, max_size=3
)
EXPRESSIONS = st.lists(
    st.fixed_dictionaries({"key": WORDS, "operator": WORDS, "values": st.lists(WORDS, max_size=2)}), max_size=2
)
SELECTORS = st.fixed_dictionaries(
    {"matchLabels": st.dictionaries(WORDS, WORDS, max_size=2), "matchExpressions": EXPRESSIONS}
)
TERMS = st.fixed_dictionaries({"matchExpressions": EXPRESSIONS, "matchFields": EXPRESSIONS})
POD_TERMS = st.fixed_dictionaries(
    {"topologyKey": WORDS, "labelSelector": SELECTORS, "namespaces": st.lists(WORDS, max_size=1)}
)


def few(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Return up to two of something, often none."""
    return st.one_of(st.just([]), st.lists(strategy, max_size=2))


def weighted(name: str, strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return something with any weight at all."""
    return st.fixed_dictionaries({"weight": NUMBERS, name: strategy})


def affinity(*, avoid: bool) -> st.SearchStrategy[Any]:
    """Return affinities of pods to pods."""
    required, preferred = (f"{kind}DuringSchedulingIgnoredDuringExecution" for kind in ("required", "preferred"))
    found = {required: few(POD_TERMS), preferred: few(weighted("podAffinityTerm", POD_TERMS))}
    return st.fixed_dictionaries({"podAntiAffinity" if avoid else "podAffinity": st.fixed_dictionaries(found)})


NODE_AFFINITY = st.fixed_dictionaries(
    {
        "nodeAffinity": st.fixed_dictionaries(
            {
                "requiredDuringSchedulingIgnoredDuringExecution": st.fixed_dictionaries(
                    {"nodeSelectorTerms": few(TERMS)}
                ),
                "preferredDuringSchedulingIgnoredDuringExecution": few(weighted("preference", TERMS)),
            }
        )
    }
)
PORTS = st.fixed_dictionaries({"hostPort": NUMBERS, "protocol": WORDS, "hostIP": WORDS})
CONTAINERS = st.fixed_dictionaries(
    {
        "name": WORDS,
        "image": WORDS,
        "resources": st.fixed_dictionaries({"requests": REQUESTS}),
        "ports": few(PORTS),
        "restartPolicy": WORDS,
    }
)
SPREAD = st.fixed_dictionaries(
    {
        "maxSkew": NUMBERS,
        "topologyKey": WORDS,
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway", ""]),
        "labelSelector": SELECTORS,
        "minDomains": NUMBERS,
        "matchLabelKeys": few(WORDS),
    }
)
TOLERATIONS = st.fixed_dictionaries({"key": WORDS, "operator": WORDS, "value": WORDS, "tolerationSeconds": NUMBERS})
VOLUMES = st.sampled_from(
    [
        {"name": "v", "persistentVolumeClaim": {"claimName": ""}},
        {"name": "v", "persistentVolumeClaim": {"claimName": "missing"}},
        {"name": "v", "ephemeral": {}},
        {"name": "v"},
    ]
)
SPECS = st.fixed_dictionaries(
    {"schedulerName": st.just(SCHEDULER_NAME)},
    optional={
        "containers": st.lists(CONTAINERS, max_size=2),
        "initContainers": st.lists(CONTAINERS, max_size=2),
        "nodeName": st.sampled_from(["", "n1", "absurd", "gone"]),
        "nodeSelector": st.dictionaries(WORDS, WORDS, max_size=2),
        "affinity": st.one_of(NODE_AFFINITY, affinity(avoid=False), affinity(avoid=True)),
        "tolerations": few(TOLERATIONS),
        "topologySpreadConstraints": few(SPREAD),
        "overhead": REQUESTS,
        "resources": st.fixed_dictionaries({"requests": REQUESTS}),
        "volumes": few(VOLUMES),
        "priority": NUMBERS,
    },
)
NODES = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": st.just("absurd"), "labels": st.dictionaries(WORDS, WORDS, max_size=2)}
        )
    },
    optional={
        "spec": st.fixed_dictionaries({"taints": few(st.fixed_dictionaries({"key": WORDS, "effect": WORDS}))}),
        "status": st.fixed_dictionaries(
            {
                "allocatable": REQUESTS,
                "images": few(st.fixed_dictionaries({"names": st.lists(WORDS, max_size=2), "sizeBytes": NUMBERS})),
            }
        ),
    },
)
CONSTRAINTS = st.fixed_dictionaries({}, optional={"topology": few(st.fixed_dictionaries({"key": WORDS}))})


def wire(plain: object, kind: type[Any]) -> Any:  # noqa: ANN401 - whatever kind is wanted
    """Encode and decode an object; what the model cannot represent never reaches the engine."""
    found = parse_object(json.dumps(plain).encode(), kind)
    return None if isinstance(found, Rejected) else found


def survivors(simulator: ClusterSimulator) -> None:
    """Add two valid pods beside the malformed ones, and check that they are placed."""
    simulator.put_node(node("n1", cpu=2, memory="1Gi", labels={"good": "yes"}, taints=(RED,)))
    simulator.put_group(pod_group("good-group", gang=2))
    for name in ("good-1", "good-2"):
        simulator.put_pod(pod(name, group="good-group", cpu=1, node_selector={"good": "yes"}, tolerations=(BEARS_RED,)))
    simulator.settle()
    assert [simulator.pods[name].spec.node_name for name in ("good-1", "good-2")] == ["n1", "n1"]


@cases(600)
@given(st.lists(SPECS, min_size=1, max_size=3))
def test_malformed_pods(specs: Sequence[dict[str, Any]]) -> None:
    """Whatever a pod requests, pending or running, other pods are placed."""
    simulator = ClusterSimulator(SearchOptions(detail=True))
    simulator.put_node(node("n0", cpu=4, memory="1Gi"))
    for number, spec in enumerate(specs):
        found: Pod | None = wire({"metadata": {"name": f"absurd-{number}", "uid": f"{number}"}, "spec": spec}, Pod)
        if found is not None and found.spec.node_name != "n1":
            simulator.put_pod(found)
    survivors(simulator)


@cases(300)
@given(NODES)
def test_malformed_nodes(plain: dict[str, Any]) -> None:
    """Whatever a node reports, pods are placed on the others."""
    simulator = ClusterSimulator(SearchOptions(detail=True))
    found: Node | None = wire(plain, Node)
    if found is not None:
        simulator.put_node(found)
        simulator.put_pod(pod("curious"))
    survivors(simulator)


@cases(300)
@given(NUMBERS, NUMBERS, CONSTRAINTS, CONSTRAINTS)
def test_malformed_groups(minimum: int, groups: int, above: dict[str, Any], below: dict[str, Any]) -> None:
    """Whatever a group demands, other groups are placed."""
    simulator = ClusterSimulator(SearchOptions(detail=True))
    simulator.put_node(node("n0", cpu=4))
    root = {"schedulingPolicy": {"gang": {"minGroupCount": groups}}, "schedulingConstraints": above}
    leaf = {"schedulingPolicy": {"gang": {"minCount": minimum}}, "schedulingConstraints": below}
    for kind, name, spec in ((CompositePodGroup, "root", root), (PodGroup, "leaf", leaf)):
        parent = {"parentCompositePodGroupName": "root"} if name == "leaf" else {}
        reference = {"workloadRef": {"workloadName": "w", "templateName": name}}
        found: Group | None = wire(
            {"metadata": {"name": name, "namespace": "default"}, "spec": {**spec, **reference, **parent}}, kind
        )
        if found is not None:
            simulator.put_group(found)
    simulator.put_pod(pod("member", group="leaf"))
    survivors(simulator)


@cases(200)
@given(st.lists(st.sampled_from(["a", "b"]), max_size=4), st.lists(st.sampled_from(["n1", "n2"]), max_size=4))
def test_duplicates(pods: list[str], nodes: list[str]) -> None:
    """Objects that come again, or two with one UID, change nothing for others."""
    simulator = ClusterSimulator(SearchOptions())
    for name in nodes:
        simulator.put_node(node(name, taints=(RED, RED)))
    for name in pods:
        simulator.put_pod(
            pod(name, cpu=1, node_name="n2", node_selector={"a": "b"}, tolerations=(BEARS_RED, BEARS_RED))
        )
    survivors(simulator)
