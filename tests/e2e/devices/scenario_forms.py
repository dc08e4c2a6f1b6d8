"""Scenarios about the devices of single pods, as data, and the objects that they stand for.

Every name of a scenario is qualified with the run and the scenario, so that all scenarios share one cluster without
sharing nodes, classes or drivers. In strings, ``$driver`` is the driver of the scenario and ``$here`` its prefix.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cpg_client.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from cpg_lab import devices
from cpg_lab.devices import CLAIM_TEMPLATES
from cpg_lab.nodes import DEFAULT_CAPACITY

FOLDER = Path(__file__).with_name("scenarios")
LABEL = "scenario"
"""The label of the nodes of a scenario, which all its pods and network-attached devices select."""
KINDS = {
    one.plural: one
    for one in (
        NODES,
        PODS,
        PRIORITY_CLASSES,
        RESOURCE_SLICES,
        DEVICE_CLASSES,
        DEVICE_TAINT_RULES,
        CLAIM_TEMPLATES,
        RESOURCE_CLAIMS,
    )
}
Plain = dict[str, Any]


class Form(msgspec.Struct, forbid_unknown_fields=True, rename="camel", frozen=True):
    """A part of a scenario."""


class NodeForm(Form, frozen=True):
    """A node; its capacity is added to that of other nodes."""

    labels: dict[str, str] = {}
    capacity: dict[str, str] = {}


class PodForm(Form, frozen=True):
    """A pod with claims by name, or with one from a template."""

    claims: list[str] = []
    template: str = ""
    requests: dict[str, str] = {}
    selector: dict[str, str] = {}
    node: str = ""
    """The node of a pod that runs."""
    priority: str = ""
    """A priority class of the scenario."""


class Step(Form, frozen=True):
    """What happens at once: pods finish, objects are deleted, others are created; then ``bound`` pods have nodes.

    ``allocations`` are written for claims, and ``conditions`` of the allocated devices of a claim, as a driver does.
    """

    bound: list[str]
    finish: list[str] = []
    delete: list[str] = []
    nodes: dict[str, NodeForm | None] = {}
    slices: list[Plain] = []
    classes: dict[str, Plain | None] = {}
    taint_rules: dict[str, Plain] = {}
    priorities: dict[str, int] = {}
    templates: dict[str, Plain | None] = {}
    claims: dict[str, Plain | None] = {}
    allocations: dict[str, Plain] = {}
    conditions: dict[str, dict[str, bool]] = {}
    pods: dict[str, PodForm] = {}


class Difference(Form, frozen=True):
    """What our scheduler does in another way on purpose: the pods with nodes after each step, and the reason."""

    because: str
    bound: list[list[str]]


class Scenario(Form, frozen=True):
    """One row of the table."""

    about: str
    steps: list[Step]
    since: str = "1.34"
    """The first version of Kubernetes that has it without further gates."""
    equivalent: dict[str, str] = {}
    """Nodes that may be chosen in place of another."""
    differs: Difference | None = None

    def has_step(self, number: int) -> bool:
        """Return whether something happens in this step."""
        return number < len(self.steps)


def load() -> dict[str, Scenario]:
    """Return all scenarios by name."""
    found: dict[str, Scenario] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        scenarios = msgspec.convert(yaml.safe_load(path.read_text("utf-8")), dict[str, Scenario])
        assert not found.keys() & scenarios.keys(), path
        found |= scenarios
    return found


@dataclass(frozen=True)
class Run:
    """One of the two runs of a scenario: for one scheduler, with objects of its own."""

    name: str
    scheduler: str
    scenario_name: str
    scenario: Scenario

    @property
    def here(self) -> str:
        """The prefix of all names; it is also the namespace, which some claims need for administrators."""
        return f"{self.name}-{self.scenario_name}"

    @property
    def driver(self) -> str:
        """The driver of all devices."""
        return f"{self.here}.example.com"

    def qualified(self, name: str) -> str:
        """Return the name of a cluster-scoped object."""
        return f"{self.here}-{name}"

    def objects(self, number: int) -> list[Plain]:
        """Return all objects of a step but its pods."""
        step = self.scenario.steps[number]
        default = {"gpu": None} if number == 0 and "gpu" not in step.classes and not self._has_class("gpu") else {}
        found: list[Plain] = self._filled(
            [
                *(self._node(name, form or NodeForm()) for name, form in step.nodes.items()),
                *(self._slice(index, number, form) for index, form in enumerate(step.slices)),
                *(self._class(name, form or {}) for name, form in {**default, **step.classes}.items()),
                *(self._priority(name, value) for name, value in step.priorities.items()),
                *(self._rule(name, form) for name, form in step.taint_rules.items()),
                *(self._claim(devices.claim_template, name, form or {}) for name, form in step.templates.items()),
                *(self._claim(devices.claim, name, form or {}) for name, form in step.claims.items()),
            ]
        )
        return found

    def allocations(self, number: int) -> dict[str, Plain]:
        """Return the allocations that are written for claims in a step."""
        found: dict[str, Plain] = self._filled(self.scenario.steps[number].allocations)
        return found

    def pods(self, number: int) -> list[Plain]:
        """Return the pods of a step, in the order of their creation."""
        pods = self.scenario.steps[number].pods
        found: list[Plain] = self._filled([self._pod(name, form) for name, form in pods.items()])
        return found

    def deleted(self, number: int) -> Iterator[str]:
        """Yield the paths of the objects that a step deletes."""
        for text in self.scenario.steps[number].delete:
            plural, _, name = text.partition("/")
            resource = KINDS[plural]
            yield resource.path(self.here, name) if resource.namespaced else resource.path(None, self.qualified(name))

    def plain_names(self, value: object) -> Any:  # noqa: ANN401  # any JSON value
        """Return a value with the names that the scenario gives."""
        text = (
            json.dumps(value).replace(self.driver, "$driver").replace(f"{self.here}-", "").replace(self.here, "$here")
        )
        for name, other in self.scenario.equivalent.items():
            text = re.sub(rf'"{name}"', f'"{other}"', text)
        return json.loads(text)

    def _has_class(self, name: str) -> bool:
        return any(name in step.classes for step in self.scenario.steps)

    def _filled(self, value: Any) -> Any:  # noqa: ANN401  # any JSON value
        """Return a value with this run's names in place of ``$driver`` and ``$here``."""
        text = json.dumps(value).replace("$driver", self.driver).replace("$here", self.here)
        return json.loads(text)

    def _node(self, name: str, form: NodeForm) -> Plain:
        capacity = {**DEFAULT_CAPACITY, **form.capacity}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
        whole = self.qualified(name)
        labels = {LABEL: "$here", "kubernetes.io/hostname": whole, **form.labels}
        status = {"capacity": capacity, "allocatable": capacity, "conditions": [ready]}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": whole, "labels": labels}, "status": status}

    def _slice(self, index: int, step: int, form: Plain) -> Plain:
        given = dict(form)
        name = self.qualified(given.pop("name", f"slice-{step}-{index}"))
        node, pool = given.pop("node", ""), given.pop("pool", "")
        offered = given.pop("devices", ())
        offered = devices.gpus(offered) if isinstance(offered, int) else [devices.device(**each) for each in offered]
        if "selector" in given:
            given["selector"] = {LABEL: "$here", **given["selector"]}
        where = {"node": self.qualified(node)} if node else {}
        named = {"pool": self.qualified(pool)} if pool else {}
        return devices.resource_slice(name, offered, **{"driver": "$driver", **where, **named, **given})

    def _class(self, name: str, form: Plain) -> Plain:
        return devices.device_class(self.qualified(name), **{"select": ['device.driver == "$driver"'], **form})

    def _priority(self, name: str, value: int) -> Plain:
        kind = {"apiVersion": PRIORITY_CLASSES.api_version, "kind": PRIORITY_CLASSES.kind}
        return {**kind, "metadata": {"name": self.qualified(name)}, "value": value}

    def _rule(self, name: str, form: Plain) -> Plain:
        given = dict(form)
        taint = given.pop("taint")
        return devices.taint_rule(self.qualified(name), taint, **given)

    def _claim(self, build: Callable[..., Plain], name: str, form: Plain) -> Plain:
        given = dict(form)
        requests = [self._request(each) for each in given.pop("requests", [{}])]
        return build(name, *requests, **{"namespace": "$here", **given})

    def _request(self, form: Plain) -> Plain:
        given = dict(form)
        name = given.pop("name", "gpu")
        if "firstAvailable" in given:
            return devices.request(name, first_available=[self._requested(each) for each in given["firstAvailable"]])
        return devices.request(name, **self._requested(given))

    def _requested(self, form: Plain) -> Plain:
        given = dict(form)
        names = {"device_class_name": self.qualified(given.pop("class", "gpu")), "all_devices": given.pop("all", False)}
        return {**given, **names}

    def _pod(self, name: str, form: PodForm) -> Plain:
        amounts = {"cpu": "100m", **form.requests}
        container = {"name": "main", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
        spec: Plain = {
            "schedulerName": self.scheduler,
            "nodeSelector": {LABEL: "$here", **form.selector},
            "containers": [container],
            "terminationGracePeriodSeconds": 0,
            **devices.pod_claims(*form.claims, template=form.template),
            **({"nodeName": self.qualified(form.node)} if form.node else {}),
            **({"priorityClassName": self.qualified(form.priority)} if form.priority else {}),
        }
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "$here"}, "spec": spec}


def runs(version: str, schedulers: dict[str, str]) -> Iterable[Run]:
    """Return the runs of all scenarios that a version of Kubernetes has, for schedulers by the name of their run."""
    for name, scenario in load().items():
        if _number(scenario.since) <= _number(version):
            for run, scheduler in schedulers.items():
                yield Run(run, scheduler, name, scenario)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
