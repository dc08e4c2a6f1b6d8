"""A cluster in which somebody waits and others run, in the short forms of scenario files."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cpg_engine.gangs.feasibility import Needs
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import Unit
from cpg_engine.preemption.allowances import Allowances
from cpg_engine.preemption.candidates import PotentialVictim, ages, potential_victims
from cpg_engine.preemption.case import Case
from cpg_engine.preemption.trying import Trials
from cpg_engine.preemption.values import PreemptionPlan
from cpg_engine.testing.scenario_forms import BudgetForm, Forms, GroupForm, NodeForm
from cpg_engine.testing.simulator import ClusterSimulator, RootUnit
from cpg_engine.testing.victim_units import budgets_of, units_of

PRIORITY = 100
"""Of whoever names none."""


class PreemptionCase:
    """Objects on a stage, and what the steps of a plan make of the root called ``high``."""

    def __init__(
        self,
        nodes: Iterable[object],
        pods: Iterable[object],
        groups: Mapping[str, Mapping[str, Any]] | None = None,
        budgets: Mapping[str, BudgetForm] | None = None,
        options: SearchOptions | None = None,
    ) -> None:
        """Read the forms."""
        forms = Forms(PRIORITY)
        self.stage = ClusterSimulator(options or SearchOptions())
        for line in nodes:
            for node in forms.nodes(msgspec.convert(line, str | NodeForm)):
                self.stage.put_node(node)
        for group in forms.groups(msgspec.convert(groups or {}, dict[str, GroupForm])):
            self.stage.put_group(group)
        for form in pods:
            for pod in forms.pods(msgspec.convert(form, str | dict[str, Any])):
                self.stage.put_pod(pod)
        for name, budget in (budgets or {}).items():
            self.stage.put_budget(name, budget)

    @property
    def root(self) -> RootUnit:
        """Return what waits."""
        return next(root for root in self.stage.roots() if root.name == "high")

    @property
    def unit(self) -> Unit:
        """Return it as the engine sees it."""
        return self.stage.unit(self.root)

    def trials(self) -> Trials:
        """Return tries for what waits."""
        return Trials(self.stage.snapshot, self.unit, self.stage.options)

    def candidates(self) -> list[PotentialVictim]:
        """Return who may go, the most important first."""
        units = units_of(self.stage.groups.values(), self.stage.pods.values())
        return potential_victims(self.stage.snapshot.ledger, units, PRIORITY)

    def case(self, goal: int) -> Case:
        """Return the case in which so many pods are to have a place."""
        return Case(
            trials=self.trials(),
            needs=Needs(self.unit),
            allowances=Allowances(budgets_of(self.stage.budgets, self.stage.pods.values())),
            ages=ages(self.candidates()),
            goal=goal,
        )

    def plan(self) -> PreemptionPlan:
        """Return the plan."""
        return self.stage.plan(self.root)


def names(some: Iterable[PotentialVictim]) -> list[str]:
    """Return the names of units."""
    return [found.unit.key.name for found in some]
