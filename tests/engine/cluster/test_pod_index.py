"""The index of pods on nodes, and the counts derived from it."""

from collections.abc import Iterable, Mapping
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from msgspec import Struct
from msgspec.structs import replace

from cpg_api.core.affinity import Affinity, PodAffinity, PodAffinityTerm
from cpg_api.core.pod import Pod
from cpg_api.meta import LabelSelector
from cpg_api.selectors import Labels
from cpg_engine.cluster import pod_index
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.cluster.pod_classes import NOMINATED, PodClass
from cpg_engine.cluster.pod_index import PodIndex
from cpg_engine.filters.registry import dynamic_filters
from cpg_engine.testing.builders import metadata, node, pod
from cpg_engine.testing.filter_strategies import FilterCase, filter_cases, with_affinity, with_ports, with_spread
from cpg_engine.testing.strategies import cases
from cpg_engine.weights import Weights


class Named(Struct, frozen=True):
    """Counts the pods of an app, each with a weight."""

    app: str
    worth: int = 1

    def relevant_classes(self, index: PodIndex) -> Iterable[PodClass]:
        """Return all classes."""
        return index.classes

    def weight(self, pod_class: PodClass, namespaces: Mapping[str, Labels]) -> int:
        """Return the weight of a pod, which is larger in a known namespace."""
        known = 10 if pod_class.namespace in namespaces else 1
        return self.worth * known if pod_class.labels.get("app") == self.app else 0


def app(name: str, number: int = 0, *, avoid: str | None = None, **labels: str) -> Pod:
    """Return a pod of an app, which may reject another app."""
    term = PodAffinityTerm(label_selector=LabelSelector(match_labels={"app": avoid or ""}), topology_key="zone")
    affinity = Affinity(pod_anti_affinity=PodAffinity((term,))) if avoid else None
    return pod("p", meta=metadata(f"{name}{number}", app=name, **labels), affinity=affinity)


def ledger_of(*homes: str) -> Ledger:
    """Return a ledger with nodes ``a`` and ``b`` that distinguishes apps, and one web pod per named node."""
    ledger = Ledger()
    ledger.class_of(app("asker", avoid="web"))
    for name in "ab":
        ledger.put_node(node(name))
    for number, home in enumerate(homes):
        ledger.put_pod(app("web", number), home)
    return ledger


WEB = Named("web")


def counted(ledger: Ledger, question: Named = WEB) -> dict[str, int]:
    """Return the counts that are not zero, by node."""
    counts = ledger.pod_index.counts(question)
    return {name: int(counts[row]) for name, row in ledger.cluster.row_of.items() if counts[row]}


def test_counts_follow_pods() -> None:
    """They are right when first asked for, and after every pod that comes or goes."""
    ledger = ledger_of("a", "a", "b")
    assert counted(ledger) == {"a": 2, "b": 1}
    ledger.put_pod(app("web", 3), "b")
    ledger.remove_pod("uid-default-web0")
    ledger.put_pod(app("db"), "a")
    assert counted(ledger) == {"a": 1, "b": 2}
    assert counted(ledger, Named("web", 5)) == {"a": 5, "b": 10}
    assert counted(ledger, Named("cache")) == {}


def test_counts_can_be_asked_for_within_a_simulation() -> None:
    """Simulated pods count, several at once as well, and are gone after the rollback."""
    ledger = ledger_of("a")
    mark = ledger.mark()
    rows = np.array([ledger.cluster.row_of[name] for name in "abb"])
    ledger.place(ledger.class_of(app("web")), rows)
    assert counted(ledger) == {"a": 2, "b": 2}
    ledger.rollback(mark)
    assert counted(ledger) == {"a": 1}


def test_counts_outlive_the_growth_of_the_cluster() -> None:
    """Pods on nodes beyond the first capacity are counted like the others."""
    ledger = ledger_of("a", "new-99")
    assert counted(ledger) == {"a": 1}
    for number in range(100):
        ledger.put_node(node(f"new-{number}"))
    assert counted(ledger) == {"a": 1, "new-99": 1}


def test_removing_a_node_removes_its_pods_from_counts() -> None:
    """They count again when it comes back, perhaps in another row."""
    ledger = ledger_of("a", "b")
    ledger.put_pod(app("rival", avoid="web"), "b")
    ledger.put_pod(app("rival", 1, avoid="web"), "a")
    assert counted(ledger) == {"a": 1, "b": 1}
    for name in "ab":
        ledger.remove_node(name)
    assert (counted(ledger), list(ledger.pod_index.classes_with_terms)) == ({}, [])
    for name in "xba":
        ledger.put_node(node(name))
    assert counted(ledger) == {"a": 1, "b": 1}
    assert len(ledger.pod_index.classes_with_terms) == 1


def test_only_the_queries_used_last_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dropped query is computed again, with the right result."""
    monkeypatch.setattr(pod_index, "MAX_CACHED_QUERIES", 2)
    ledger = ledger_of("a")
    for worth in (1, 2, 1, 3):
        assert counted(ledger, Named("web", worth)) == {"a": worth}
    assert list(ledger.pod_index._answers) == [Named("web", 1), Named("web", 3)]
    ledger.put_pod(app("web", 7), "a")
    assert [counted(ledger, Named("web", worth)) for worth in (1, 2, 3)] == [{"a": 2}, {"a": 4}, {"a": 6}]


def test_more_label_keys_keep_more_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod with terms on every topology key finds all its counts when it is scheduled again."""
    monkeypatch.setattr(pod_index, "MAX_CACHED_QUERIES", 2)
    ledger = ledger_of("a")
    ledger.put_node(node("b", labels={"zone": "z", "rack": "r"}))
    for worth in range(20):
        counted(ledger, Named("web", worth))
    assert [question.worth for question in ledger.pod_index._answers if isinstance(question, Named)] == [*range(10, 20)]


def test_namespace_labels_change_counts() -> None:
    """Only a real change drops the counts."""
    ledger = ledger_of("a")
    assert counted(ledger) == {"a": 1}
    ledger.pod_index.put_namespace("default", {"tier": "1"})
    assert counted(ledger) == {"a": 10}
    ledger.pod_index.put_namespace("default", {"tier": "1"})
    assert ledger.pod_index.namespaces_version == 1
    for _ in range(2):
        ledger.pod_index.put_namespace("default", None)
        assert counted(ledger) == {"a": 1}
    assert ledger.pod_index.namespaces_version == 2


def test_classes_are_found_by_labels_and_by_the_labels_that_they_select() -> None:
    """Only classes with pods on nodes are found; a class that selects any pod is found by all."""
    ledger = ledger_of("a")
    web, rival = ledger.class_of(app("web")), ledger.class_of(app("rival", avoid="web"))
    ledger.put_pod(app("rival", avoid="web"), "b")
    found = ledger.pod_index
    assert list(found.with_label(("app", "web"))) == [web]
    assert list(found.with_label(None)) == list(found.classes) == [web, rival]
    assert list(found.possible_selectors_of(web)) == [rival]
    assert list(found.possible_selectors_of(rival)) == []
    ledger.remove_pod("uid-default-rival0")
    ledger.remove_pod("uid-default-web0")
    assert (list(found.with_label(("app", "web"))), found.possible_selectors_of(web)) == ([], {})
    assert (found._labelled, found._asking) == ({}, {})


def test_classes_of_nominated_pods_are_counted() -> None:
    """The count follows when a pod or a node goes."""
    ledger = ledger_of("a")
    assert ledger.pod_index.nominated == 0
    for name, home in (("web", "a"), ("db", "a"), ("db", "b")):
        found = app(name)
        ledger.put_pod(replace(found, metadata=replace(found.metadata, uid=f"{NOMINATED}{name}-{home}")), home)
    assert ledger.pod_index.nominated == 2
    ledger.remove_pod(f"{NOMINATED}db-a")
    assert ledger.pod_index.nominated == 2
    ledger.remove_node("b")
    assert ledger.pod_index.nominated == 1
    ledger.ignore([f"{NOMINATED}web-a"])
    assert ledger.pod_index.nominated == 0


# Labels that selectors ask for.


def test_labels_that_no_selector_asks_for_make_no_classes() -> None:
    """The completion index of a Job leaves its pods in one class until a selector asks for it."""
    ledger = Ledger()
    ledger.put_node(node("a"))
    for number in range(3):
        ledger.put_pod(app("web", number, index=str(number)), "a")
    assert len({id(held.pod_class) for held in ledger._held.values()}) == 1
    selector = LabelSelector(match_labels={"app": "web", "index": "1"})
    term = PodAffinityTerm(label_selector=selector, topology_key="zone")
    asker = ledger.class_of(pod("asker", affinity=Affinity(pod_affinity=PodAffinity((term,)))))
    assert len({id(held.pod_class) for held in ledger._held.values()}) == 3
    (question,) = asker.relations.terms.required
    assert [question.selects("default", held.pod_class.labels, {}) for held in ledger._held.values()] == [
        False,
        True,
        False,
    ]


def test_a_new_selector_makes_known_pods_count() -> None:
    """Those on unknown nodes, too; what they use of their nodes stays as it was."""
    ledger = Ledger()
    ledger.put_node(node("a"))
    for number, home in enumerate(("a", "later")):
        ledger.put_pod(app("web", number), home)
    ledger.put_pod(pod("plain"), "a")
    used, plain = ledger.used.copy(), ledger._held["uid-default-plain"].pod_class
    ledger.class_of(app("asker", avoid="web"))
    assert counted(ledger) == {"a": 1}
    assert np.array_equal(used, ledger.used)
    assert ledger._held["uid-default-plain"].pod_class is plain
    ledger.put_node(node("later"))
    assert counted(ledger) == {"a": 1, "later": 1}


def test_a_label_set_before_a_selector_asks_is_known_later() -> None:
    """The newest object of a pod is kept, even if it makes no difference at the time."""
    ledger = Ledger()
    ledger.put_node(node("a"))
    ledger.put_pod(app("old"), "a")
    ledger.put_pod(replace(app("web"), metadata=replace(app("old").metadata, labels={"app": "web"})), "a")
    ledger.class_of(app("asker", avoid="web"))
    assert counted(ledger) == {"a": 1}


# Whatever happens.


def state(ledger: Ledger) -> tuple[Any, ...]:
    """Return everything that a rollback has to restore."""
    found = ledger.pod_index
    answers = {question: counts.tolist() for question, counts in found._answers.items()}
    rows = {pod_class.index: dict(rows) for pod_class, rows in found._rows.items()}
    carriers = [pod_class.index for pod_class in found.classes_with_terms]
    return answers, rows, carriers, found.nominated, ledger.used.tolist(), ledger.scored.tolist()


@given(filter_cases(st.one_of(with_ports(), with_affinity(), with_spread())), st.data())
@cases(150)
def test_rollback_restores_everything(case: FilterCase, data: st.DataObject) -> None:
    """After any sequence of simulations and rollbacks, every count is bit for bit what it was."""
    ledger, incoming, rows = case.settled()
    filters = dynamic_filters(ledger, Weights())
    classes = [incoming, *(ledger.class_of(pod) for pod, _ in case.placed.pods)]
    for view in [view for pod_class in classes for found in filters if (view := found.pre_filter(pod_class))]:
        view.passes(rows)
        view.score(rows)
    marks = [(ledger.mark(), state(ledger))]
    for step in data.draw(st.lists(st.integers(0, 3), max_size=8)):
        if step:
            chosen = [rows[place % len(rows)] for place in range(step, 2 * step)]
            ledger.place(data.draw(st.sampled_from(classes)), np.array(chosen, dtype=np.intp))
            marks.append((ledger.mark(), state(ledger)))
        elif len(marks) > 1:
            marks.pop()
            ledger.rollback(marks[-1][0])
            assert state(ledger) == marks[-1][1]
    ledger.rollback(marks[0][0])
    assert state(ledger) == marks[0][1]


@given(filter_cases(st.one_of(with_affinity(), with_spread())))
@cases(150)
def test_updated_counts_equal_recomputed_ones(case: FilterCase) -> None:
    """Counts that followed the pods equal counts computed from scratch."""
    ledger, incoming, rows = case.settled()
    views = [view for found in dynamic_filters(ledger, Weights()) if (view := found.pre_filter(incoming))]
    for view in views:
        view.passes(rows)
        view.score(rows)
    ledger.place(incoming, rows)
    kept = {question: counts.tolist() for question, counts in ledger.pod_index._answers.items()}
    ledger.pod_index.clear_cache()
    assert kept == {question: ledger.pod_index.counts(question).tolist() for question in kept}
