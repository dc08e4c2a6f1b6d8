"""Tolerations: the table of Kubernetes, and the rule said the slow way."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_api.tolerations import BLOCKING_EFFECTS, first_untolerated_taint, tolerates, untolerated_taints

NO_SCHEDULE, NO_EXECUTE, PREFER_NO = "NoSchedule", "NoExecute", "PreferNoSchedule"
SLA = "node.kubernetes.io/sla"

tolerations = st.builds(
    Toleration,
    key=st.sampled_from(["", "a", "b"]),
    operator=st.sampled_from(["", "Equal", "Exists", "Foo"]),
    value=st.sampled_from(["", "1", "x"]),
    effect=st.sampled_from(["", NO_SCHEDULE, NO_EXECUTE]),
)
taints = st.builds(
    Taint,
    key=st.sampled_from(["a", "b"]),
    value=st.sampled_from(["", "1", "x"]),
    effect=st.sampled_from([NO_SCHEDULE, NO_EXECUTE, PREFER_NO]),
)


@pytest.mark.parametrize(
    ("toleration", "taint", "borne"),
    [
        (Toleration("foo", "Exists", effect=NO_SCHEDULE), Taint("foo", "", NO_SCHEDULE), True),
        (Toleration("foo", "Exists", effect=NO_SCHEDULE), Taint("foo", "bar", NO_SCHEDULE), True),
        (Toleration("", "Exists", effect=NO_SCHEDULE), Taint("foo", "bar", NO_SCHEDULE), True),
        (Toleration("", "Exists"), Taint("foo", "bar", NO_EXECUTE), True),
        (Toleration("foo", "Equal", "bar", NO_SCHEDULE), Taint("foo", "bar", NO_SCHEDULE), True),
        (Toleration("foo", "", "bar", NO_SCHEDULE), Taint("foo", "bar", NO_SCHEDULE), True),
        (Toleration("foo", value="bar"), Taint("foo", "bar", NO_EXECUTE), True),
        (Toleration("foo", "Equal", "value1", NO_SCHEDULE), Taint("foo", "value2", NO_SCHEDULE), False),
        (Toleration("foo", "Equal", "bar", NO_SCHEDULE), Taint("foo", "bar", NO_EXECUTE), False),
        (Toleration("foo", "Exists"), Taint("food", "", NO_SCHEDULE), False),
        (Toleration("", "Equal", "bar"), Taint("foo", "bar", NO_SCHEDULE), True),
        (Toleration("foo", "exists"), Taint("foo", "", NO_SCHEDULE), False),
    ],
)
def test_a_toleration_bears_what_kubernetes_says(*, toleration: Toleration, taint: Taint, borne: bool) -> None:
    """Keys, effects and values compare as in Kubernetes, where empty means all and an odd operator nothing."""
    assert tolerates(toleration, taint) is borne


@pytest.mark.parametrize(
    ("operator", "bound", "number", "borne"),
    [
        ("Gt", "950", "800", False),
        ("Gt", "750", "950", True),
        ("Gt", "950", "950", False),
        ("Lt", "800", "950", False),
        ("Lt", "950", "800", True),
        ("Lt", "0", "-1", True),
        ("Gt", "-100", "-200", False),
        ("Gt", "9223372036854775806", "9223372036854775807", True),
        ("Gt", "9223372036854775807", "9223372036854775808", False),
        *(("Gt", odd, "200", False) for odd in ("abc", "", "0100", "+100", "100.5", "-", "-0", "1 ")),
        *(("Lt", "100", odd, False) for odd in ("xyz", "", "007", "+1", "1.5", "-", "-0", "1_0")),
    ],
)
def test_numbers_are_compared_strictly(*, operator: str, bound: str, number: str, borne: bool) -> None:
    """Gt and Lt compare the taint's number with the toleration's, if both are int64 in canonical form."""
    assert tolerates(Toleration(SLA, operator, bound), Taint(SLA, number, NO_SCHEDULE)) is borne


@settings(deadline=None)
@given(tolerations, taints)
def test_a_toleration_bears_what_agrees_in_every_part(toleration: Toleration, taint: Taint) -> None:
    """Effect and key agree or are left open, and the value agrees or does not matter."""
    parts = (
        toleration.effect in {"", taint.effect},
        toleration.key in {"", taint.key},
        toleration.operator == "Exists" or (toleration.operator in {"", "Equal"} and toleration.value == taint.value),
    )
    assert tolerates(toleration, taint) is all(parts)


@settings(deadline=None)
@given(
    st.lists(taints, max_size=4),
    st.lists(tolerations, max_size=4),
    st.frozensets(st.sampled_from([NO_SCHEDULE, NO_EXECUTE, PREFER_NO])),
)
def test_untolerated_are_those_that_nothing_bears(
    on_node: list[Taint], borne: list[Toleration], effects: frozenset[str]
) -> None:
    """The untolerated taints are those of the wanted effects that no toleration bears, in the node's order."""
    wanted = [taint for taint in on_node if taint.effect in effects]
    expected = [taint for taint in wanted if True not in [tolerates(one, taint) for one in borne]]
    assert untolerated_taints(on_node, borne, effects) == tuple(expected)
    assert first_untolerated_taint(on_node, borne, effects) == (expected[0] if expected else None)


@settings(deadline=None)
@given(st.lists(taints, max_size=4), st.lists(tolerations, max_size=4), tolerations)
def test_a_further_toleration_never_hurts(on_node: list[Taint], borne: list[Toleration], more: Toleration) -> None:
    """With one more toleration no taint becomes untolerated that was not before."""
    assert set(untolerated_taints(on_node, [*borne, more])) <= set(untolerated_taints(on_node, borne))


def test_without_taints_or_tolerations() -> None:
    """A node without taints takes every pod; a pod without tolerations bears none that keeps off."""
    hard, soft = Taint("a", "", NO_EXECUTE), Taint("a", "", PREFER_NO)
    assert untolerated_taints(None, None) == ()
    assert first_untolerated_taint((), None) is None
    assert untolerated_taints((soft, hard), None) == (hard,)
    assert untolerated_taints((soft, hard), None, {PREFER_NO}) == (soft,)
    assert frozenset({NO_SCHEDULE, NO_EXECUTE}) == BLOCKING_EFFECTS
