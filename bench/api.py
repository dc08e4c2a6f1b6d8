"""Measure decoding and validation of trees, and compare each figure with its budget.

``make bench`` runs it; ``README.md`` describes how to compare two versions. Figures are CPU seconds of this process,
the best of some runs, because other load makes them worse and never better.
"""

import argparse
import gc
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import process_time

import msgspec
import yaml
from backlogs import jobset_backlog

from cpg_api.core.pod import Pod
from cpg_api.integrations.registry import RULES, Integrations
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_api.parsing import parse_list
from cpg_api.quantity import amount
from cpg_api.scheduling.forest import Forest, Group
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_api.scheduling.priority import PriorityClasses
from cpg_api.scheduling.validation import ValidationContext, validate
from cpg_api.selectors import LabelMatcher
from cpg_engine.testing.builders import composite, inner_template, leaf_template, pod_group, workload

HERE = Path(__file__).parent

Timed = Callable[[], object]
"""The measured function; its inputs are prepared before."""


def pod_list(count: int) -> bytes:
    """Return a LIST of so many pods of a training job, of about 4 KB each, as an API server encodes it."""
    text = json.dumps(json.loads((HERE / "pod.json").read_bytes()), separators=(",", ":"))
    pods = (
        text.replace("NUMBER", str(number)).replace("GANG", str(number // 16)).replace("NODE", str(number % 5000))
        for number in range(count)
    )
    head = '{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":['
    return (head + ",".join(pods) + "]}").encode()


def tree_groups(number: int) -> list[Group]:
    """Return a tree: a root with two groups of two PodGroups each."""
    root = f"tree-{number}"
    groups: list[Group] = [composite(root, template="root", key="block")]
    for side in ("left", "right"):
        groups.append(composite(f"{root}-{side}", parent=root, template=side, key="rack"))
        groups += (
            pod_group(f"{root}-{side}-{leaf}", parent=f"{root}-{side}", template=f"{side}-{leaf}", gang=16)
            for leaf in ("a", "b")
        )
    return groups


def decode_pods() -> Timed:
    """Decode a LIST of 10,000 pods."""
    data = pod_list(10_000)
    return lambda: parse_list(data, Pod)


def derive_groups() -> Timed:
    """Derive the groups of 30,000 pods of JobSets, as the scheduler does for each event of a pod."""
    bodies = (body for _, body in jobset_backlog(1000, 10, by_label=False)(SCHEDULER_NAME) if body["kind"] == "Pod")
    pods = [msgspec.convert(body, Pod) for body in bodies]
    integrations = Integrations([SCHEDULER_NAME], RULES)
    return lambda: [integrations.with_group(pod) for pod in pods]


def grow_trees() -> Timed:
    """Build the forest of 7,000 groups, the leaves first, and grow its 1,000 trees."""
    groups = [group for number in range(1000) for group in reversed(tree_groups(number))]
    return lambda: list(Forest.of(groups).trees())


def validate_trees() -> Timed:
    """Validate 1,000 valid trees of 7 groups."""
    trees = list(Forest.of(group for number in range(1000) for group in tree_groups(number)).trees())
    sides = [
        inner_template(side, [leaf_template(f"{side}-a"), leaf_template(f"{side}-b")]) for side in ("left", "right")
    ]
    templates = workload([inner_template("root", sides)])
    context = ValidationContext(workloads={("default", "w"): templates}, classes=PriorityClasses(by_name={}))

    def run() -> None:
        if any(validate(tree, context) for tree in trees):
            raise ValueError("the trees were meant to be valid")

    return run


def parse_quantities() -> Timed:
    """Parse 100,000 quantities, 200 different ones, from the cache."""
    texts = [("cpu", f"{number}m") for number in range(100)] + [("memory", f"{number}Mi") for number in range(100)]
    quantities = texts * 500

    def run() -> None:
        for resource, quantity in quantities:
            amount(resource, quantity)

    return run


def match_selectors() -> Timed:
    """Match a selector of one label and two expressions 100,000 times; half of the labels match."""
    expressions = (
        LabelSelectorRequirement(key="tier", operator="In", values=("web", "db")),
        LabelSelectorRequirement(key="retired", operator="DoesNotExist"),
    )
    matcher = LabelMatcher.compile(LabelSelector(match_labels={"app": "train"}, match_expressions=expressions))
    labels = [{"app": "train", "tier": tier, "pod": str(number)} for number in range(500) for tier in ("web", "batch")]

    def run() -> None:
        if sum(matcher.matches(one) for one in labels * 100) != 50_000:
            raise ValueError("half of the labels were meant to match")

    return run


MEASURES: Mapping[str, Callable[[], Timed]] = {
    measure.__name__: measure
    for measure in (decode_pods, derive_groups, grow_trees, validate_trees, parse_quantities, match_selectors)
}


def best_seconds(measure: Callable[[], Timed], runs: int) -> float:
    """Return the least CPU seconds of so many runs."""
    timed = measure()
    figures = []
    for _ in range(runs):
        gc.collect()
        start = process_time()
        made = timed()
        figures.append(process_time() - start)
        del made  # freed outside of the measured time
    return min(figures)


def main() -> int:
    """Print a line for each measure; return 1 if one of them is over its budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"of {', '.join(MEASURES)} (default: all)")
    parser.add_argument("--runs", type=int, default=5, help="runs, of which the best counts (default: 5)")
    arguments = parser.parse_args()
    if unknown := set(arguments.measures) - MEASURES.keys():
        parser.error(f"no such measure: {', '.join(sorted(unknown))}")
    budgets = yaml.safe_load((HERE / "budgets.yaml").read_bytes())
    print(f"{'measure':<18}{'figure':>10}{'budget':>10}{'ratio':>8}")
    over = False
    for name in arguments.measures or MEASURES:
        figure, budget = best_seconds(MEASURES[name], arguments.runs), budgets[name]["budget"]
        over |= figure > budget
        print(f"{name:<18}{figure:>8.3f} s{budget:>8.3f} s{figure / budget:>8.2f}{'  OVER' * (figure > budget)}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
