"""The checks as a whole: the list of rules, violations as values, and what the coordinator reports."""

import pytest

from cpg_simulation.checks.history import HandWrite, History
from cpg_simulation.checks.knowledge import newest_revision
from cpg_simulation.checks.registry import SENT_RULES, SETTLED_RULES, WRITE_RULES
from cpg_simulation.checks.values import Rule

RULES = (*SENT_RULES, *WRITE_RULES, *SETTLED_RULES)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_says_what_it_promises(rule: Rule) -> None:
    """Its promise is one sentence, and names the seconds that it allows."""
    assert rule.promise.endswith(".")
    assert rule.promise.count(". ") == 0
    assert not rule.seconds or f"{rule.seconds:g} " in rule.promise


def test_no_two_rules_share_a_name() -> None:
    """A violation names its rule."""
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)


def test_a_violation_is_a_value() -> None:
    """It has the rule, the time, the revision, the objects and a sentence."""
    history = History()
    history.now = 1.5
    history.pod("a", schedulerName="other")
    history.node("n")
    history.bind("a", "n")
    (found,) = history.checks.violations
    assert (found.time, found.revision, found.objects) == (1.5, history.revision, ("Pod team/a",))
    sentence = "Pod team/a is bound, and names scheduler 'other'"
    assert str(found) == f"1.500 s, revision {history.revision}: Only own pods are bound: {sentence}"


def test_a_restored_cluster_is_what_its_objects_say() -> None:
    """After a restore a pod may be bound again, and leases say nothing until they are written."""
    history = History()
    history.node("n", cpu="1")
    history.pod("a")
    pod = history.get("pods", "a")
    history.bind("a", "n")
    kept = [("nodes", history.get("nodes", "n")), ("pods", pod)]
    history.checks.restored([_recorded(resource, raw) for resource, raw in kept], history.now)
    history.now = 60.0
    history.bind("a", "n")
    assert history.broken() == []
    history.lease("scheduler-1")
    history.meta("pods", "a", "scheduler-0", annotations={})
    assert "Only the leader writes" in history.broken()


def _recorded(resource: str, raw: dict[str, dict[str, str]]) -> HandWrite:
    meta = raw["metadata"]
    return HandWrite(
        revision=1,
        time=0.0,
        user="",
        verb="create",
        resource=resource,
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        new=raw,
    )


def test_the_newest_revision_of_what_was_received_is_found() -> None:
    """In a list, in lines of a watch, and where there is none."""
    assert newest_revision(b'{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"resourceVersion": "5"}}]}') == 7
    assert newest_revision(b'{"object":{"metadata":{"resourceVersion":"8"}}}\n{"resourceVersion":"9"}\n') == 9
    assert newest_revision(b"{}") == 0
