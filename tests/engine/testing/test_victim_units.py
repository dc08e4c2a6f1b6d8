"""Running pods in the units in which they are evicted."""

from cpg_engine.testing.builders import composite, pod, pod_group
from cpg_engine.testing.scenario_forms import BudgetForm
from cpg_engine.testing.victim_units import budgets_of, never_preempts, units_of

TREE = (
    composite("top", priority=7),
    composite("whole", parent="top", all_=True, priority=7),
    pod_group("left", parent="whole", all_=True, priority=7),
    pod_group("right", parent="whole", priority=7),
    pod_group("loose", parent="top", priority=7),
)


def test_the_highest_group_of_disruption_mode_all_is_the_unit() -> None:
    """Otherwise the pod itself is; the priority is the highest of the pods; pending and finished pods are in none."""
    names = {"left": 2, "right": 5, "loose": 1, "gone": 1}
    pods = [pod(f"p-{name}", group=name, node_name="n", priority=number) for name, number in names.items()]
    found = units_of(TREE, [*pods, pod("alone", node_name="n", priority=3), pod("waits")])
    assert [(str(unit.key), unit.priority, len(unit.pods)) for unit in found] == [
        ("CompositePodGroup default/whole", 5, 2),
        ("Pod default/p-loose", 1, 1),
        ("Pod default/p-gone", 1, 1),
        ("Pod default/alone", 3, 1),
    ]


def test_budgets_cover_pods_by_their_labels() -> None:
    """A pod needs all of the labels."""
    covered = pod("p", group="left")
    label = dict(covered.metadata.labels)
    (found,) = budgets_of({"web": BudgetForm(label, 1)}, [covered, pod("q")])
    assert (found.name, found.allowed, list(found.pods)) == ("web", 1, [covered.metadata.uid])


def test_one_pod_that_never_preempts_is_enough() -> None:
    """All pods of a tree should have the same policy."""
    assert never_preempts([pod("p"), pod("q", preemption_policy="Never")])
    assert not never_preempts([pod("p")])
