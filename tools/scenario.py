"""Play one scenario of tests/scenarios and print what the engine decides in each step, and why.

A scenario is named by its path below tests/scenarios, or by any part of it that only one scenario has. The exit code is
0 where all expectations are met, 1 where one is not, and 2 where the name does not lead to one scenario.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cpg_engine.decisions import Decision
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.preemption.values import PreemptionPlan
from cpg_engine.testing.scenario_expectations import unmet
from cpg_engine.testing.scenario_forms import Forms
from cpg_engine.testing.scenarios import Scenario, ScenarioObjects, ScenarioStep, happen
from cpg_engine.testing.simulator import ClusterSimulator
from cpg_engine.verdicts import Finding
from cpg_scheduler.status.messages.attempts import contradiction_message, group_messages
from cpg_scheduler.status.messages.preemption import eviction_message

FOLDER = Path(__file__).parents[1] / "tests" / "scenarios"
SUGGESTED = 8
"""Names that are suggested instead of one that does not exist."""


class UnknownScenarioError(LookupError):
    """No scenario, or more than one, answers to a name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="?", default="", help="the path of a scenario, or a part of it")
    given = parser.parse_args(arguments)
    try:
        name = resolve(given.name, names(FOLDER))
    except UnknownScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    path = FOLDER / f"{name}.yaml"
    plain = yaml.safe_load(path.read_text("utf-8"))
    print(f"{name}: {plain['about']}")
    complaints = list(play(plain))
    print(f"\nExpectations that are not met: {len(complaints)}." if complaints else "\nAll expectations are met.")
    return int(bool(complaints))


def names(folder: Path) -> list[str]:
    """Return the names of all scenarios."""
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def resolve(name: str, known: Sequence[str]) -> str:
    """Return the scenario that a name means; raise with suggestions where there is none, or more than one."""
    if not name:
        raise UnknownScenarioError("make scenario NAME=... needs the name of a scenario:\n" + _listed(known))
    wanted = name.removesuffix(".yaml").removeprefix("tests/scenarios/")
    exact = [one for one in known if wanted in {one, one.partition("/")[2]}]
    found = exact or [one for one in known if wanted in one]
    if len(found) == 1:
        return found[0]
    if found:
        raise UnknownScenarioError(f'"{name}" is a part of {len(found)} names:\n{_listed(found)}')
    stems = {one.partition("/")[2]: one for one in known}
    close = [stems[stem] for stem in get_close_matches(wanted.rpartition("/")[2], stems, n=SUGGESTED, cutoff=0.5)]
    hint = f"similar names:\n{_listed(close)}" if close else "make scenario lists all names."
    raise UnknownScenarioError(f'No scenario is called "{name}"; {hint}')


def play(plain: Mapping[str, Any]) -> Iterator[str]:
    """Play a scenario, print what happens, and yield the expectations that are not met."""
    scenario = msgspec.convert(plain, Scenario)
    simulator = ClusterSimulator(SearchOptions(budget=scenario.budget, detail=True))
    forms = Forms(scenario.priority)
    created = ScenarioObjects(scenario.nodes, scenario.groups, scenario.pods, scenario.budgets)
    steps = (ScenarioStep(create=created, expect=scenario.expect), *scenario.steps)
    for number, (step, written) in enumerate(zip(steps, (plain, *plain.get("steps", ())), strict=True)):
        print(f"\nStep {number}{f': {step.about}' if step.about else ''}")
        _print(changes(written))
        happen(step, simulator, forms)
        if step.schedule != "not":
            simulator.settle(once=step.schedule == "once")
        _print(outcome(simulator))
        complaints = [*simulator.broken, *unmet(step.expect, simulator)]
        _print(f"NOT MET: {complaint}" for complaint in complaints)
        yield from complaints


def changes(written: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a step changes and expects, in the words of its file."""
    parts = {**written, **written.get("create", {})}
    for what in ("nodes", "groups", "pods", "budgets", "delete", "minimum", "finish", "schedule"):
        if what in parts:
            yield f"{what}: {_flow(parts[what])}"
    yield from (f"expects {what}: {_flow(value)}" for what, value in written.get("expect", {}).items())


def outcome(simulator: ClusterSimulator) -> Iterator[str]:
    """Yield what was decided in a step: plans and findings, what is held, and where all pods are in the end."""
    for root in {**simulator.decisions, **simulator.plans}:
        decision = list(_decision(root, simulator.decisions[root])) if root in simulator.decisions else []
        plan = list(_plan(root, simulator.plans[root], simulator)) if root in simulator.plans else []
        has_helped = bool(plan and simulator.plans[root].nominations)
        yield from (*plan, *decision) if has_helped else (*decision, *plan)
    yield from (f"{name}: held: {why}" for name, why in simulator.held.items())
    yield from (f"{name}: cannot be scheduled: {why}" for name, why in simulator.refused.items())
    by_node: dict[str, list[str]] = defaultdict(list)
    for name, pod in simulator.pods.items():
        by_node[pod.spec.node_name or "none"].append(name)
    yield f"pods by node: {_flow(dict(sorted(by_node.items())))}"


def _decision(root: str, decision: Decision) -> Iterator[str]:
    explanation = decision.explanation
    contradiction = explanation.contradiction
    yield f"{root}: {explanation.finding}{f': {contradiction_message(contradiction)}' if contradiction else ''}"
    messages = group_messages(explanation)
    for report in explanation.reports:
        counts = msgspec.to_builtins(report.counts)
        numbers = " ".join(f"{word}={number}" for word, number in counts.items())
        domain = f" in {report.domain.key}={report.domain.value}" if report.domain else ""
        message = "" if explanation.finding is Finding.PLACED else f": {messages.get(report.key, '')}"
        yield f"  {report.key}: {report.status}{domain} ({numbers}){message.rstrip(': ')}"


def _plan(root: str, plan: PreemptionPlan, simulator: ClusterSimulator) -> Iterator[str]:
    considered = f"units considered: {plan.considered}" + (", out of budget" if plan.exhausted else "")
    yield f"{root}: preemption: {plan.outcome} ({considered})"
    for eviction in plan.evictions:
        violated = f"; violates {', '.join(eviction.violates)}" if eviction.violates else ""
        yield f"  evicts {eviction.unit.key}: {eviction_message(eviction.reason)}{violated}"
    pods = {pod.metadata.uid: name for name, pod in simulator.pods.items()}
    for nomination in plan.nominations:
        yield f"  nominates {pods.get(nomination.uid, nomination.uid)} to {nomination.node}"


def _flow(value: object) -> str:
    """Return a value in the flow style of YAML, on one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, sort_keys=False)
    return text.removesuffix("...\n").strip()


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"  {line}")


def _listed(found: Sequence[str]) -> str:
    return "\n".join(f"  {name}" for name in found)


if __name__ == "__main__":
    sys.exit(main())
