"""What pods require of other pods, compiled."""

from typing import Any

import pytest
from msgspec.structs import replace

from cpg_api.core.affinity import (
    Affinity,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from cpg_api.core.pod import PodSpec
from cpg_api.meta import LabelSelector, LabelSelectorRequirement
from cpg_api.selectors import LabelMatcher
from cpg_engine.cluster.pod_relations import (
    AffinityTerm,
    AffinityTerms,
    Relations,
    SpreadConstraint,
    asked_labels,
    relations_of,
    required_label,
)
from cpg_engine.testing.builders import pod

WEB = LabelSelector(match_labels={"app": "web"})
SICK = LabelSelector(match_expressions=(LabelSelectorRequirement("app", "Like", ("web",)),))
MERGED = LabelSelector(
    match_labels={"app": "web"},
    match_expressions=(
        LabelSelectorRequirement("hash", "In", ("1",)),
        LabelSelectorRequirement("track", "NotIn", ("old",)),
    ),
)


def term(**fields: Any) -> PodAffinityTerm:
    """Return a term for the web pods of a zone."""
    return PodAffinityTerm(**{"label_selector": WEB, "topology_key": "zone", **fields})


def spec(
    *required: PodAffinityTerm, anti: bool = False, weights: tuple[int, ...] = (), spread: tuple[Any, ...] = ()
) -> PodSpec:
    """Return the spec of a pod with required terms, or with preferred ones that have these weights."""
    weighted = tuple(WeightedPodAffinityTerm(weight, found) for weight, found in zip(weights, required, strict=False))
    affinity = PodAffinity(
        required_during_scheduling_ignored_during_execution=None if weights else required,
        preferred_during_scheduling_ignored_during_execution=weighted or None,
    )
    return PodSpec(
        affinity=Affinity(pod_anti_affinity=affinity) if anti else Affinity(pod_affinity=affinity),
        topology_spread_constraints=spread or None,
    )


def compiled(found: PodSpec, **labels: str) -> Relations:
    """Return what a pod of that spec requires of others."""
    return relations_of(replace(pod("me"), spec=found), labels)


def spread(**fields: Any) -> TopologySpreadConstraint:
    """Return a hard constraint on the web pods."""
    return TopologySpreadConstraint(
        **{"topology_key": "zone", "when_unsatisfiable": "DoNotSchedule", "label_selector": WEB, **fields}
    )


def test_terms_are_sorted_by_their_kind() -> None:
    """Preferred anti-affinity has a negative weight."""
    like = compiled(spec(term(), weights=(7,))).terms.preferred
    ((weight, only),) = like
    assert (weight, only.key, only.namespaces) == (7, "zone", frozenset(["default"]))
    assert compiled(spec(term(), weights=(7,), anti=True)).terms.preferred == ((-7, only),)
    assert compiled(spec(term())).terms.required == (only,)
    assert compiled(spec(term(), anti=True)).terms.required_anti == (only,)
    assert not compiled(PodSpec()).terms


@pytest.mark.parametrize(
    ("fields", "namespace", "expected"),
    [
        ({}, "default", True),
        ({}, "back", False),
        ({"namespaces": ("back",)}, "back", True),
        ({"namespaces": ("back",)}, "default", False),
        ({"namespace_selector": LabelSelector()}, "unknown", True),
        ({"namespace_selector": LabelSelector(match_labels={"tier": "1"})}, "back", True),
        ({"namespace_selector": LabelSelector(match_labels={"tier": "1"})}, "default", False),
        ({"namespaces": ("default",), "namespace_selector": LabelSelector(match_labels={"tier": "1"})}, "back", True),
    ],
)
def test_a_term_selects_pods_of_its_namespaces(fields: dict[str, Any], namespace: str, *, expected: bool) -> None:
    """Listed or selected namespaces both count; with neither it is the pod's own."""
    (only,) = compiled(spec(term(**fields))).terms.required
    assert only.selects(namespace, {"app": "web"}, {"back": {"tier": "1"}, "default": {}}) is expected


@pytest.mark.parametrize("selector", [WEB, MERGED])
def test_label_keys_narrow_the_selector_once(selector: LabelSelector) -> None:
    """What the API server has merged stands, what comes from a file is merged here; unknown keys are left out."""
    keys = {"match_label_keys": ("hash", "missing"), "mismatch_label_keys": ("track",)}
    (only,) = compiled(spec(term(label_selector=selector, **keys)), hash="1", track="old").terms.required
    assert only.labels == LabelMatcher.compile(MERGED)


def test_merged_label_keys_outlive_a_change_of_the_label() -> None:
    """The API server recorded the value that the pod was created with."""
    (only,) = compiled(spec(term(label_selector=MERGED, match_label_keys=("hash",))), hash="2").terms.required
    assert only.labels == LabelMatcher.compile(MERGED)


def test_a_missing_selector_selects_no_pods() -> None:
    """Label keys do not change that."""
    (only,) = compiled(spec(term(label_selector=None, match_label_keys=("hash",))), hash="1").terms.required
    assert only.labels.matches_nothing
    (constraint,) = compiled(
        PodSpec(topology_spread_constraints=(spread(label_selector=None, match_label_keys=("hash",)),)), hash="1"
    ).spread
    assert (constraint.counted.matches_nothing, constraint.own) == (True, 0)


def test_a_constraint_is_compiled_with_its_defaults() -> None:
    """Affinity is honored and taints are not, unless the constraint says otherwise."""
    (one, other) = compiled(
        PodSpec(
            topology_spread_constraints=(
                spread(match_label_keys=("hash",)),
                spread(min_domains=2, max_skew=3, node_affinity_policy="Ignore", node_taints_policy="Honor"),
            )
        ),
        app="web",
        hash="1",
    ).spread
    narrowed = LabelSelector({"app": "web"}, (LabelSelectorRequirement("hash", "In", ("1",)),))
    assert one == SpreadConstraint("zone", 1, 1, True, LabelMatcher.compile(narrowed), 1, True, False)  # noqa: FBT003
    assert other == SpreadConstraint("zone", 3, 2, True, LabelMatcher.compile(WEB), 1, False, True)  # noqa: FBT003


def test_an_empty_selector_selects_the_pod_but_counts_no_pods() -> None:
    """It is the same in kube-scheduler; with a label key the selector is not empty any more."""
    empty = spread(label_selector=LabelSelector())
    (odd,) = compiled(PodSpec(topology_spread_constraints=(empty,)), app="web").spread
    assert (odd.counted.matches_nothing, odd.own) == (True, 1)
    (usual,) = compiled(
        PodSpec(topology_spread_constraints=(replace(empty, match_label_keys=("app",)),)), app="web"
    ).spread
    assert usual.counted.matches({"app": "web"})


@pytest.mark.parametrize(
    ("found", "paths"),
    [
        (spec(term(label_selector=SICK)), ["podAffinity.required[0].labelSelector.matchExpressions[0].operator"]),
        (spec(term(), term(topology_key=""), anti=True), ["podAntiAffinity.required[1].topologyKey"]),
        (
            spec(term(namespace_selector=SICK), weights=(5,)),
            ["podAffinity.preferred[0].namespaceSelector.matchExpressions[0].operator"],
        ),
        (spec(term(), term(), weights=(0, 101)), [f"podAffinity.preferred[{place}].weight" for place in (0, 1)]),
    ],
)
def test_malformed_terms_are_left_out_and_reported(found: PodSpec, paths: list[str]) -> None:
    """Each has its path; the others still count, and a weight of any size does no harm."""
    relations = compiled(found)
    assert [problem.path for problem in relations.problems] == [f"spec.affinity.{path}" for path in paths]
    assert relations.terms == AffinityTerms(required_anti=relations.terms.required_anti[:1])


def test_malformed_constraints_are_left_out_and_reported() -> None:
    """These are skews out of range, unknown actions, missing keys and unreadable selectors."""
    sick = (
        spread(max_skew=0),
        spread(max_skew=2**40),
        spread(when_unsatisfiable="Shrug"),
        spread(topology_key=""),
        spread(label_selector=SICK),
        spread(),
    )
    relations = compiled(PodSpec(topology_spread_constraints=sick))
    fields = ["maxSkew", "maxSkew", "whenUnsatisfiable", "topologyKey", "labelSelector.matchExpressions[0].operator"]
    assert [problem.path for problem in relations.problems] == [
        f"spec.topologySpreadConstraints[{place}].{field}" for place, field in enumerate(fields)
    ]
    assert len(relations.spread) == 1


def test_the_labels_that_selectors_ask_for() -> None:
    """They are those of every selector, and the label keys; no other label of a pod matters."""
    found = spec(
        term(label_selector=MERGED, match_label_keys=("a",), mismatch_label_keys=("b",)),
        term(label_selector=None),
        spread=(spread(match_label_keys=("c",)),),
    )
    assert set(asked_labels(found)) == {"app", "hash", "track", "a", "b", "c"}
    assert set(asked_labels(PodSpec())) == set()


@pytest.mark.parametrize(
    ("selector", "label"),
    [
        (WEB, ("app", "web")),
        (LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", ("web",)),)), ("app", "web")),
        (LabelSelector(match_expressions=(LabelSelectorRequirement("app", "In", ("web", "db")),)), None),
        (LabelSelector(match_expressions=(LabelSelectorRequirement("app", "Exists"),)), None),
        (LabelSelector(), None),
    ],
)
def test_most_selectors_require_one_label(selector: LabelSelector, label: tuple[str, str] | None) -> None:
    """Pods that lack it need not be evaluated."""
    assert required_label(LabelMatcher.compile(selector)) == label
    terms = compiled(spec(term(label_selector=selector), weights=(1,))).terms
    assert terms.needed_labels == frozenset([label])


def test_compiled_forms_are_values() -> None:
    """Pods with equal terms share one query."""
    assert compiled(spec(term())) == compiled(spec(term()))
    assert hash(compiled(spec(term()))) == hash(compiled(spec(term())))
    assert AffinityTerms(preferred=((1, AffinityTerm("zone", LabelMatcher(), frozenset(), LabelMatcher())),))
