"""The short forms of scenario files, and the objects that they stand for.

Everything is decoded by msgspec into the structs below, which reject unknown fields: a typing error in a scenario never
passes for an expectation that was met.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.node import Node, Taint
from cpg_api.core.pod import Pod, PodSpec
from cpg_api.core.resources import ResourceList
from cpg_api.meta import ObjectMeta
from cpg_api.parsing import Rejected, convert_object
from cpg_api.scheduling.forest import Group
from cpg_api.scheduling.names import EXPECTED_PODS, POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_engine.testing.builders import NAMESPACE, composite, metadata, node, pod_group

_POD = re.compile(r"(?:([^=@ ]+)=)?(?:(\d+)x)?([^@ ]+)?(?:@(\S+))?(?: on (\S+))?")
_SPEC_FIELDS = frozenset(field.encode_name for field in msgspec.structs.fields(PodSpec))


class ScenarioError(ValueError):
    """A scenario is malformed."""


class NodeForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A node in its long form; ``count`` nodes of one kind are called ``name-1``, ``name-2``, ..."""

    node: str
    count: int | None = None
    memory: str | None = None
    pods: int = 110
    more: ResourceList = {}
    taints: tuple[str, ...] = ()
    unschedulable: bool = False


class GroupForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A group: basic without ``gang``; with ``children``, even if empty, a CompositePodGroup.

    With ``whole`` its pods are evicted together or not at all; ``preemption`` is its preemption policy.
    """

    gang: int | None = None
    whole: bool = False
    preemption: str | None = None
    key: str | None = None
    preferred: str | None = None
    priority: int | None = None
    parent: str | None = None
    workload: str = "w"
    created: int | None = None
    expects: int | None = None
    """How many pods it will have, all like the oldest."""
    children: "dict[str, GroupForm | None] | None" = None


class BudgetForm(Struct, frozen=True, forbid_unknown_fields=True):
    """A PodDisruptionBudget: how many of the pods with all of the labels may be disrupted now."""

    labels: dict[str, str]
    allowed: int = 0


class PodForm(Struct, frozen=True):
    """What a pod's long form may have beside the fields of its spec."""

    pod: str
    memory: str | None = None
    more: ResourceList = {}
    labels: dict[str, str] = {}
    priority: int | None = None
    phase: str = ""
    gates: tuple[str, ...] = ()
    created: int | None = None


_OWN_FIELDS = frozenset(field.name for field in msgspec.structs.fields(PodForm))


class Forms:
    """Reads forms in the order of the text; each object is created a second after the one before."""

    def __init__(self, priority: int) -> None:
        """Start at second zero; ``priority`` is that of everything that names none."""
        self._priority = priority
        self._second = 0
        self._numbers: Counter[str] = Counter()

    def nodes(self, form: str | NodeForm) -> Iterator[Node]:
        """Yield the nodes of a form."""
        long = NodeForm(node=form) if isinstance(form, str) else form
        name, *rest = long.node.split()
        cpu = rest.pop(0) if rest and "=" not in rest[0] else None
        labels = dict(_pair(text) for text in rest)
        for index in range(long.count or 1):
            yield node(
                f"{name}-{index + 1}" if long.count else name,
                cpu=cpu,
                memory=long.memory,
                pods=long.pods,
                more=long.more,
                labels=labels,
                taints=[_taint(text) for text in long.taints],
                unschedulable=long.unschedulable,
            )

    def groups(self, forms: Mapping[str, GroupForm | None], parent: str | None = None) -> Iterator[Group]:
        """Yield the groups of a tree, parents first."""
        for name, found in forms.items():
            form = found or GroupForm()
            meta = self._born(name, form.created)
            build = pod_group if form.children is None else composite
            group = build(
                name,
                gang=form.gang,
                parent=form.parent or parent,
                workload=form.workload,
                key=form.key,
                preferred=form.preferred,
                all_=form.whole,
                priority=self._priority if form.priority is None else form.priority,
                meta=meta,
            )
            if form.expects is not None:
                annotations = {EXPECTED_PODS: f'[{{"count": {form.expects}}}]'}
                group = replace(group, metadata=replace(group.metadata, annotations=annotations))
            yield replace(group, spec=replace(group.spec, preemption_policy=form.preemption))
            yield from self.groups(form.children or {}, name)

    def pods(self, form: str | Mapping[str, Any]) -> Iterator[Pod]:
        """Yield the pods of a form."""
        plain: Mapping[str, Any] = {"pod": form} if isinstance(form, str) else form
        spec = {key: value for key, value in plain.items() if key not in _OWN_FIELDS}
        if unknown := spec.keys() - _SPEC_FIELDS:
            raise ScenarioError(f"neither we nor a pod's spec know {sorted(unknown)}")
        long = _converted(plain, PodForm)
        match = _POD.fullmatch(long.pod)
        if match is None:
            raise ScenarioError(f"{long.pod!r} is not of the form NAME=COUNTxCPU@GROUP on NODE")
        name, count, cpu, group, node_name = match.groups()
        for called in self._called(name, count, group):
            yield self._pod(long, spec, self._born(called, long.created), cpu=cpu, group=group, node_name=node_name)

    def _called(self, name: str | None, count: str | None, group: str | None) -> Iterator[str]:
        if name and not count:
            yield name
            return
        prefix = name or group or "pod"
        for _ in range(int(count or 1)):
            self._numbers[prefix] += 1
            yield f"{prefix}-{self._numbers[prefix]}"

    def _pod(
        self,
        form: PodForm,
        spec: Mapping[str, Any],
        meta: ObjectMeta,
        *,
        cpu: str | None,
        group: str | None,
        node_name: str | None,
    ) -> Pod:
        requests = {"cpu": cpu, "memory": form.memory, **form.more}
        container = {"name": "main", "resources": {"requests": {k: v for k, v in requests.items() if v is not None}}}
        found: Pod = _converted(
            {
                "spec": {
                    "schedulerName": SCHEDULER_NAME,
                    "priority": self._priority if form.priority is None else form.priority,
                    "nodeName": node_name,
                    "containers": [container],
                    "schedulingGates": [{"name": gate} for gate in form.gates],
                    **spec,
                },
                "status": {"phase": form.phase or ("Running" if node_name else "")},
            },
            Pod,
        )
        labels = {**form.labels, **({POD_GROUP_LABEL: group} if group else {})}
        return msgspec.structs.replace(found, metadata=msgspec.structs.replace(meta, labels=labels))

    def _born(self, name: str, second: int | None) -> ObjectMeta:
        self._second += 1
        minutes, seconds = divmod(self._second if second is None else second, 60)
        return metadata(name, namespace=NAMESPACE, created=f"2026-01-01T00:{minutes:02}:{seconds:02}Z")


def _converted(plain: object, kind: type[Any]) -> Any:  # noqa: ANN401 - whatever kind is wanted
    found = convert_object(plain, kind)
    if isinstance(found, Rejected):
        raise ScenarioError("; ".join(str(problem) for problem in found.problems))
    return found


def _pair(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise ScenarioError(f"{text!r} is not of the form LABEL=VALUE")
    return key, value


def _taint(text: str) -> Taint:
    pair, separator, effect = text.rpartition(":")
    if not separator:
        raise ScenarioError(f"{text!r} is not of the form KEY=VALUE:EFFECT")
    key, _, value = pair.partition("=")
    return Taint(key=key, value=value, effect=effect)
