"""Tolerations: the table of Kubernetes, and a slow model of the rule."""

import pytest
from hypothesis import given
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
def test_tolerations_match_as_in_kubernetes(*, toleration: Toleration, taint: Taint, borne: bool) -> None:
    """An empty key or effect matches all, and an unknown operator nothing."""
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
    """Gt and Lt compare the taint's number with the toleration's, if both are canonical int64."""
    assert tolerates(Toleration(SLA, operator, bound), Taint(SLA, number, NO_SCHEDULE)) is borne


@given(tolerations, taints)
def test_a_toleration_matches_where_every_part_agrees(toleration: Toleration, taint: Taint) -> None:
    """Effect and key are equal or empty, and the value is equal or not compared."""
    parts = (
        toleration.effect in {"", taint.effect},
        toleration.key in {"", taint.key},
        toleration.operator == "Exists" or (toleration.operator in {"", "Equal"} and toleration.value == taint.value),
    )
    assert tolerates(toleration, taint) is all(parts)


@given(
    st.lists(taints, max_size=4),
    st.lists(tolerations, max_size=4),
    st.frozensets(st.sampled_from([NO_SCHEDULE, NO_EXECUTE, PREFER_NO])),
)
def test_untolerated_taints_are_those_without_a_toleration(
    on_node: list[Taint], borne: list[Toleration], effects: frozenset[str]
) -> None:
    """They have one of the requested effects, and keep the node's order."""
    wanted = [taint for taint in on_node if taint.effect in effects]
    expected = [taint for taint in wanted if True not in [tolerates(one, taint) for one in borne]]
    assert untolerated_taints(on_node, borne, effects) == tuple(expected)
    assert first_untolerated_taint(on_node, borne, effects) == (expected[0] if expected else None)


@given(st.lists(taints, max_size=4), st.lists(tolerations, max_size=4), tolerations)
def test_more_tolerations_never_add_untolerated_taints(
    on_node: list[Taint], borne: list[Toleration], more: Toleration
) -> None:
    """Adding a toleration can only remove untolerated taints."""
    assert set(untolerated_taints(on_node, [*borne, more])) <= set(untolerated_taints(on_node, borne))


def test_without_taints_or_tolerations() -> None:
    """A node without taints accepts every pod; without tolerations every blocking taint remains."""
    hard, soft = Taint("a", "", NO_EXECUTE), Taint("a", "", PREFER_NO)
    assert untolerated_taints(None, None) == ()
    assert first_untolerated_taint((), None) is None
    assert untolerated_taints((soft, hard), None) == (hard,)
    assert untolerated_taints((soft, hard), None, {PREFER_NO}) == (soft,)
    assert frozenset({NO_SCHEDULE, NO_EXECUTE}) == BLOCKING_EFFECTS
