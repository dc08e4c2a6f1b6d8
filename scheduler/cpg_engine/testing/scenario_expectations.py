"""What a scenario may expect, compared with what the engine decided."""

from collections.abc import Iterator
from fnmatch import filter as matching
from typing import Literal

from msgspec import Struct

from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Forest
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.podgroup import PodGroup
from cpg_engine.testing.scenario_wording import contradiction_text
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_engine.verdicts import GroupReport


class Expected(Struct, frozen=True, forbid_unknown_fields=True):
    """Expectations by subject; see ``cpg_engine.testing.scenarios``."""

    bound: dict[str, int | Literal["all"]] = {}
    nodes: dict[str, str | tuple[str, ...]] = {}
    together: dict[str, str] = {}
    domain: dict[str, str] = {}
    finding: dict[str, str] = {}
    detail: dict[str, str] = {}
    status: dict[str, str] = {}
    reasons: dict[str, tuple[str, ...]] = {}
    candidates: dict[str, tuple[str, ...]] = {}
    blockers: dict[str, tuple[str, ...]] = {}
    held: dict[str, str] = {}
    refused: dict[str, str] = {}
    victims: tuple[str, ...] | None = None
    nominated: tuple[str, ...] | None = None
    plan: dict[str, str] = {}
    because: dict[str, str] = {}
    conditions: dict[str, str] = {}


def unmet(expected: Expected, simulator: ClusterSimulator) -> Iterator[str]:
    """Yield a sentence for every expectation that is not met."""
    yield from _places(expected, simulator)
    yield from _decided(expected, simulator)
    yield from _reported(expected, dict(_reports(simulator)))
    for name, text in expected.held.items():
        if text not in simulator.held.get(name, ""):
            yield f"held: {name}: {text!r} is not in {simulator.held.get(name)!r}"
    for name, text in expected.refused.items():
        if name not in simulator.refused or text not in simulator.refused[name]:
            yield f"refused: {name}: {text!r} is not in {simulator.refused.get(name)!r}"
    yield from _evicted(expected, simulator)
    yield from _said(expected, simulator)


def _said(expected: Expected, simulator: ClusterSimulator) -> Iterator[str]:
    """Compare conditions where a scheduler writes them; the names must be right in any case."""
    names = {*simulator.pods, *(key.name for key in simulator.groups)}
    for pattern, wanted in expected.conditions.items():
        meant = sorted(matching(names, pattern))
        if not meant:
            yield f"conditions: {pattern}: nothing has that name"
        for name in meant:
            if simulator.reported is not None and not _says(wanted, simulator.reported.get(name, "")):
                yield f"conditions: {name}: expected {wanted!r}, found {simulator.reported.get(name)!r}"


def _says(wanted: str, found: str) -> bool:
    """Return whether status and reason are equal and the message has the part, or is empty without one."""
    *words, part = _parted(wanted)
    *rest, message = _parted(found)
    return words == rest and (part in message if part else not message)


def _parted(text: str) -> list[str]:
    return [*text.split(" ", 2), "", "", ""][:3]


def _evicted(expected: Expected, simulator: ClusterSimulator) -> Iterator[str]:
    if expected.victims is not None and set(expected.victims) != simulator.evicted.keys():
        yield f"victims: expected {sorted(expected.victims)}, found {sorted(simulator.evicted)}"
    if expected.nominated is not None:
        wanted = {pod.metadata.name for name in expected.nominated for pod in pods_of(simulator, name)}
        if wanted != simulator.nominated:
            yield f"nominated: expected {sorted(wanted)}, found {sorted(simulator.nominated)}"
    for name, outcome in expected.plan.items():
        found = str(simulator.plans[name].outcome) if name in simulator.plans else "no plan"
        if found != outcome:
            yield f"plan: {name}: expected {outcome}, found {found}"
    for name, text in expected.because.items():
        if text not in simulator.evicted.get(name, ""):
            yield f"because: {name}: {text!r} is not in {simulator.evicted.get(name)!r}"


def _places(expected: Expected, simulator: ClusterSimulator) -> Iterator[str]:
    for name, count in expected.bound.items():
        pods = pods_of(simulator, name)
        bound = sum(bool(pod.spec.node_name) for pod in pods)
        if bound != (len(pods) if count == "all" else count) or not pods:
            yield f"bound: {name}: expected {count}, found {bound} of {len(pods)}"
    for name, where in expected.nodes.items():
        allowed = (where,) if isinstance(where, str) else where
        found = (simulator.pods[name].spec.node_name or "none") if name in simulator.pods else "no such pod"
        if found not in allowed:
            yield f"nodes: {name}: expected {' or '.join(allowed)}, found {found}"
    for name, key in expected.together.items():
        values = {_label(simulator, pod, key) for pod in pods_of(simulator, name) if pod.spec.node_name}
        if len(values) != 1 or None in values:
            yield f"together: {name}: expected one value of {key}, found {sorted(map(str, values))}"


def _label(simulator: ClusterSimulator, pod: Pod, key: str) -> str | None:
    node = simulator.nodes.get(pod.spec.node_name)
    return node.metadata.labels.get(key) if node else None


def pods_of(simulator: ClusterSimulator, name: str) -> list[Pod]:
    """Return the pods of a group, of all groups below it, or of that name."""
    forest = Forest.of(simulator.groups.values())
    groups: set[str] = set()
    waiting = [key for key in simulator.groups if key.name == name]
    while waiting:
        key = waiting.pop()
        waiting.extend(forest.children.get(key, ()))
        if key.kind == PodGroup.kind:
            groups.add(key.name)
    return [pod for pod in simulator.pods.values() if pod.metadata.name == name or membership(pod).group in groups]


def _decided(expected: Expected, simulator: ClusterSimulator) -> Iterator[str]:
    for name, finding in expected.finding.items():
        decision = simulator.decisions.get(name)
        found = str(decision.explanation.finding) if decision else "no decision"
        if found != finding:
            yield f"finding: {name}: expected {finding}, found {found}"
    for name, text in expected.detail.items():
        decision = simulator.decisions.get(name)
        contradiction = decision.explanation.contradiction if decision else None
        detail = contradiction_text(contradiction) if contradiction else "no contradiction"
        if text not in detail:
            yield f"detail: {name}: {text!r} is not in {detail!r}"


def _reports(simulator: ClusterSimulator) -> Iterator[tuple[str, GroupReport]]:
    for decision in simulator.decisions.values():
        for report in decision.explanation.reports:
            yield report.key.name, report


def _reported(expected: Expected, reports: dict[str, GroupReport]) -> Iterator[str]:
    """Compare what is expected of a group with its report, in the words of the scenario."""
    for kind, name, wanted in _wanted(expected):
        if name not in reports:
            yield f"{kind}: {name}: it was not decided about"
            continue
        found = _words(kind, reports[name])
        missing = [text for text in wanted if not any(_matches(kind, text, word) for word in found)]
        if missing or (kind == "blockers" and len(wanted) != len(found)):
            yield f"{kind}: {name}: expected {list(wanted)}, found {found}"


def _wanted(expected: Expected) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for name, status in expected.status.items():
        yield "status", name, tuple(status.split())
    for name, domain in expected.domain.items():
        yield "domain", name, (domain,)
    for kind in ("reasons", "candidates", "blockers"):
        for name, texts in getattr(expected, kind).items():
            yield kind, name, texts


def _words(kind: str, report: GroupReport) -> list[str]:
    counts = report.counts
    match kind:
        case "status":
            names = ("M", counts.minimum), ("S", counts.scheduled), ("R", counts.remaining)
            more = ("U", counts.unschedulable), ("UU", counts.unresolvable)
            return [str(report.status), *(f"{name}={number}" for name, number in (*names, *more))]
        case "domain":
            return [f"{report.domain.key}={report.domain.value}" if report.domain else "none"]
        case "reasons":
            return [f"{reason.nodes} {reason.text}" for reason in report.reasons]
        case "candidates":
            return [f"{one.domain.key}={one.domain.value} {one.fits}/{one.wanted}" for one in report.candidates]
        case _:
            return [key.name for key in report.blockers]


def _matches(kind: str, text: str, word: str) -> bool:
    """Return whether it is the word; for a reason, the number and a part of the text are enough."""
    if kind != "reasons":
        return text == word
    (number, part), (nodes, reason) = text.split(" ", 1), word.split(" ", 1)
    return number == nodes and part in reason
