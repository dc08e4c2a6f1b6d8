"""Scenarios as plain data: a cluster and its objects, changes to them, and what the engine has to decide.

A scenario is a mapping, as YAML gives it::

    about: one sentence that says what holds
    defect: what is still wrong   # marks a scenario that is known to fail
    budget: 100                   # of the search; the default is the engine's
    priority: 0                   # of every group and pod that names none
    nodes: [...]                  # the objects at first
    groups: {...}
    pods: [...]
    budgets: {...}
    expect: {...}                 # after everything has been scheduled
    steps: [...]                  # further changes

Nodes, in short ``NAME CPU LABEL=VALUE ...``; with anything else in a mapping that has the short form as ``node``::

    - n1 4 zone=z1 rack=r1
    - {node: n2 4, count: 3, memory: 8Gi, pods: 32, more: {example.com/gpu: 8}, taints: ["key=value:NoSchedule"],
       unschedulable: true}       # n2-1, n2-2, n2-3

Groups, as trees; one with ``children`` is a CompositePodGroup, one without ``gang`` is basic::

    root: {gang: 2, key: zone, children: {pg1: {gang: 3, key: rack}, pg2: {gang: 1, preferred: rack}, pg3: {}}}
    late: {parent: root}          # added to what is there; further: priority, workload, created (a second)
    low: {gang: 2, whole: true}   # evicted as a whole, or not at all
    led: {key: rack, expects: 4}  # will have four pods; those that do not exist yet need room as well

Pods, in short ``NAME=COUNTxCPU@GROUP on NODE``, where only the CPU is never left out; one on a node runs there without
having been scheduled. Unnamed pods are ``pg1-1``, ``pg1-2``, ... or ``pod-1``. With more in a mapping, ``pod`` is
the short form; everything not listed here is a field of the pod's spec, as the API has it::

    - 3x1@pg1
    - blocker=2 on n1
    - {pod: 1@pg1, memory: 1Gi, more: {example.com/gpu: 1}, labels: {app: a}, priority: 5, phase: Succeeded,
       gates: [example.com/wait], created: 7, nodeSelector: {rack: r1}, tolerations: [...], affinity: {...}}

Budgets, by name, and how many of the pods with these labels may be disrupted now::

    web: {labels: {app: web}, allowed: 1}

Each object is created a second after the one before, unless ``created`` says otherwise. A step does, in this order::

    - create: {nodes: [...], groups: {...}, pods: [...], budgets: {...}}    # an object of that name is changed
      delete: [p1, pg1, n1]                                 # all objects of the name
      minimum: {pg1: 4}
      finish: {p1: Succeeded}
      schedule: until-settled | once | not                  # default: until-settled
      expect: {...}

Roots are decided in order of priority, creation and name. Trees without their root or a group, with a gated pod, or
invalid, are held. Every decision is checked against the oracle's rules. If no pod of a root could be placed, the
victims of its plan are evicted, unless its pods have ``preemptionPolicy: Never``. An expectation names its subject::

    bound: {pg1: 3, root: all, blocker: 0}  # how many pods of a group, or below it, have a node; or of pods by name
    nodes: {p1: n1, p2: [n1, n2], p3: none} # where a pod is
    together: {pg1: rack, root: zone}       # the pods of a group are in one domain of a label
    domain: {pg1: rack=r1}                  # the domain that the engine has chosen for a group
    finding: {root: Placed}                 # of the root's last decision in this step
    detail: {root: run in 2 domains}
    status: {pg1: Unschedulable M=3 S=2 R=0 U=1 UU=0}        # any of these
    reasons: {pg1: [1 Insufficient cpu]}    # the number of nodes, and a part of the text
    candidates: {pg1: [rack=r1 2/3]}        # how many of how many fit into a domain
    blockers: {root: [pg1]}                 # all that kept a group below its minimum
    held: {root: gated}                     # missing, gated, or invalid: Cycle
    refused: {p1: requests}                 # pods that can never be scheduled, and a part of the problem
    victims: [low-1, low-2]                 # these pods, and no others, were evicted in this step
    nominated: [pg1]                        # the pods of these, and no others, had their room kept for them
    plan: {pg1: NotEnough}                  # of the root's last plan in this step
    because: {low-1: needs its 2 CPU on n1} # why a pod was evicted, and a part of the text
    conditions: {pg1: True Scheduled, "pg2*": False Unschedulable room for 2 of 3}   # see below

The last is status, reason and a part of the message of the scheduling condition of a pod or group; without a part, the
message is empty. A pattern stands for all pods and groups of matching names. The engine writes no conditions: they are
compared when the scenario is played on an API server.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.testing.builders import inner_policy, leaf_policy
from cpg_engine.testing.scenario_expectations import Expected, unmet
from cpg_engine.testing.scenario_forms import BudgetForm, Forms, GroupForm, NodeForm, ScenarioError
from cpg_engine.testing.simulator import ClusterSimulator


class ScenarioObjects(Struct, frozen=True, forbid_unknown_fields=True):
    """What is created at once."""

    nodes: tuple[str | NodeForm, ...] = ()
    groups: dict[str, GroupForm | None] = {}
    pods: tuple[str | dict[str, Any], ...] = ()
    budgets: dict[str, BudgetForm] = {}


class ScenarioStep(Struct, frozen=True, forbid_unknown_fields=True):
    """A change, after which the engine decides again."""

    about: str = ""
    create: ScenarioObjects = ScenarioObjects()
    delete: tuple[str, ...] = ()
    minimum: dict[str, int] = {}
    finish: dict[str, Literal["Succeeded", "Failed"]] = {}
    schedule: Literal["until-settled", "once", "not"] = "until-settled"
    expect: Expected = field(default_factory=Expected)


class Scenario(Struct, frozen=True, forbid_unknown_fields=True):
    """A whole scenario."""

    about: str
    defect: str = ""
    budget: int = SearchOptions().budget
    priority: int = 0
    nodes: tuple[str | NodeForm, ...] = ()
    groups: dict[str, GroupForm | None] = {}
    pods: tuple[str | dict[str, Any], ...] = ()
    budgets: dict[str, BudgetForm] = {}
    expect: Expected = field(default_factory=Expected)
    steps: tuple[ScenarioStep, ...] = ()


class Result(Struct, frozen=True):
    """The expectations that were not met, and the simulator in its last state."""

    complaints: tuple[str, ...]
    simulator: ClusterSimulator


def play(plain: Mapping[str, Any]) -> Result:
    """Play a scenario; raise ``ScenarioError`` if it is malformed."""
    try:
        scenario = msgspec.convert(plain, Scenario)
    except msgspec.ValidationError as error:
        raise ScenarioError(str(error)) from error
    simulator = ClusterSimulator(SearchOptions(budget=scenario.budget, detail=True))
    forms = Forms(scenario.priority)
    at_first = ScenarioStep(
        create=ScenarioObjects(scenario.nodes, scenario.groups, scenario.pods, scenario.budgets), expect=scenario.expect
    )
    complaints: list[str] = []
    for number, step in enumerate((at_first, *scenario.steps)):
        complaints.extend(f"step {number}: {complaint}" for complaint in _played(step, simulator, forms))
    return Result(complaints=tuple(complaints), simulator=simulator)


def _played(step: ScenarioStep, simulator: ClusterSimulator, forms: Forms) -> Iterator[str]:
    happen(step, simulator, forms)
    if step.schedule != "not":
        simulator.settle(once=step.schedule == "once")
    yield from simulator.broken
    yield from unmet(step.expect, simulator)


def happen(step: ScenarioStep, simulator: ClusterSimulator, forms: Forms) -> None:
    """Perform on a simulator what a step says."""
    _create(step.create, simulator, forms)
    for name in step.delete:
        if not simulator.delete(name):
            raise ScenarioError(f"there is no {name} to delete")
    for name, minimum in step.minimum.items():
        _demand(simulator, name, minimum)
    for name, phase in step.finish.items():
        if name not in simulator.pods:
            raise ScenarioError(f"there is no {name} to finish")
        pod = simulator.pods[name]
        simulator.put_pod(replace(pod, status=replace(pod.status, phase=phase)))


def _create(created: ScenarioObjects, simulator: ClusterSimulator, forms: Forms) -> None:
    for node_form in created.nodes:
        for node in forms.nodes(node_form):
            simulator.put_node(node)
    for group in forms.groups(created.groups):
        simulator.put_group(group)
    for pod_form in created.pods:
        for pod in forms.pods(pod_form):
            simulator.put_pod(pod)
    for name, budget in created.budgets.items():
        simulator.put_budget(name, budget)


def _demand(simulator: ClusterSimulator, name: str, minimum: int) -> None:
    """Change the minimum of the groups of a name."""
    groups = [group for key, group in simulator.groups.items() if key.name == name]
    if not groups:
        raise ScenarioError(f"there is no group {name} to change")
    for group in groups:
        policy = leaf_policy(minimum) if isinstance(group, PodGroup) else inner_policy(minimum)
        simulator.put_group(replace(group, spec=replace(group.spec, scheduling_policy=policy)))
