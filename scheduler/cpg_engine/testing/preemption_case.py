"""A cluster with a pending preemptor and running victims, in the short forms of scenario files."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cpg_engine.gangs.needs import Needs
from cpg_engine.gangs.search import SearchOptions
from cpg_engine.gangs.unit import Unit
from cpg_engine.preemption.budgets import BudgetAllowances
from cpg_engine.preemption.simulation import PreemptionProblem, Simulation
from cpg_engine.preemption.values import PreemptionPlan
from cpg_engine.preemption.victims import PotentialVictim, potential_victims, start_ranks
from cpg_engine.testing.listed_budgets import ListedBudgets
from cpg_engine.testing.scenario_forms import BudgetForm, Forms, GroupForm, NodeForm
from cpg_engine.testing.simulator import ClusterSimulator, RootUnit
from cpg_engine.testing.victim_units import budgets_of, units_of

PRIORITY = 100
"""The priority of the preemptor, and of everything that names none."""


class PreemptionCase:
    """Objects in a simulator, and the steps of a plan for the root called ``high``."""

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
        self.simulator = ClusterSimulator(options or SearchOptions())
        for line in nodes:
            for node in forms.nodes(msgspec.convert(line, str | NodeForm)):
                self.simulator.put_node(node)
        for group in forms.groups(msgspec.convert(groups or {}, dict[str, GroupForm])):
            self.simulator.put_group(group)
        for form in pods:
            for pod in forms.pods(msgspec.convert(form, str | dict[str, Any])):
                self.simulator.put_pod(pod)
        for name, budget in (budgets or {}).items():
            self.simulator.put_budget(name, budget)

    @property
    def root(self) -> RootUnit:
        """Return the preemptor."""
        return next(root for root in self.simulator.roots() if root.name == "high")

    @property
    def unit(self) -> Unit:
        """Return the preemptor as a unit."""
        return self.simulator.unit(self.root)

    def simulation(self) -> Simulation:
        """Return a simulation for the preemptor."""
        return Simulation(self.simulator.snapshot, self.unit, self.simulator.options)

    def potential_victims(self) -> list[PotentialVictim]:
        """Return the potential victims, the most important first."""
        units = units_of(self.simulator.groups.values(), self.simulator.pods.values())
        return potential_victims(self.simulator.snapshot.ledger, units, PRIORITY)

    def problem(self, goal: int) -> PreemptionProblem:
        """Return the problem with a goal of so many placed pods."""
        return PreemptionProblem(
            simulation=self.simulation(),
            needs=Needs(self.unit),
            budgets=BudgetAllowances(ListedBudgets(budgets_of(self.simulator.budgets, self.simulator.pods.values()))),
            start_ranks=start_ranks(self.potential_victims()),
            goal=goal,
        )

    def plan(self) -> PreemptionPlan:
        """Return the plan."""
        return self.simulator.plan(self.root)


def names(some: Iterable[PotentialVictim]) -> list[str]:
    """Return the names of the units."""
    return [found.unit.key.name for found in some]
