"""A night that breaks a promise is shortened to what it takes."""

from collections.abc import Iterator

from msgspec.structs import replace

from cpg_simulation.nights.generator import generate
from cpg_simulation.nights.plan import Fault, Night, Submit, TreePlan
from cpg_simulation.outcome import Broken, Outcome
from cpg_simulation.shrinking import shrink


def test_parts_that_do_not_matter_are_left_out() -> None:
    """One fault and one action are left, whatever else the night had."""
    night = next(found for seed in range(100) if len((found := generate(seed)).faults) > 4 and len(found.actions) > 4)
    fault, action = night.faults[2].kind, night.actions[3]
    played = 0

    def breaks(found: Night) -> bool:
        return any(one.kind == fault for one in found.faults) and action in found.actions

    def attempt(nights: list[Night]) -> Iterator[tuple[Night, Outcome]]:
        nonlocal played
        for found in nights:
            played += 1
            broken = (Broken("rule", 1.0, "broken"),) if breaks(found) else ()
            yield found, Outcome(seed=found.seed, digest="", broken=broken)

    shortened = shrink(night, "rule", attempt)
    assert [one.kind for one in shortened.faults] == [fault]
    assert shortened.actions == (action,)
    assert shortened.faults[0].seconds <= 0.5
    assert played < 200


def test_a_night_becomes_as_simple_as_it_can() -> None:
    """One operator and no competitor are left, faults at fixed times, and trees with the one trait that matters."""
    tree = TreePlan(
        name="t", traits=("apart", "host-port", "tolerates"), budget=1, never_preempts=True, has_stable_names=True
    )
    fault = Fault(kind="kill", at=5, seconds=0.5, target="leader", trigger="binds", delay=0.3)
    submit = Submit(at=1, tree=tree, shuffled=True)
    night = replace(generate(1), actions=(submit,), faults=(fault,), operators=2, competitor=True)

    def attempt(nights: list[Night]) -> Iterator[tuple[Night, Outcome]]:
        for found in nights:
            is_broken = found.faults and any("host-port" in one.tree.traits for one in _submissions(found))
            broken = (Broken("rule", 1.0, "broken"),) if is_broken else ()
            yield found, Outcome(seed=found.seed, digest="", broken=broken)

    shortened = shrink(night, "rule", attempt)
    plain = TreePlan(name="t", traits=("host-port",), has_stable_names=True)
    assert (shortened.operators, shortened.competitor) == (1, False)
    assert shortened.actions == (Submit(at=1, tree=plain),)
    assert shortened.faults == (replace(fault, trigger="", delay=0.0),)


def _submissions(night: Night) -> list[Submit]:
    return [action for action in night.actions if isinstance(action, Submit)]


def test_a_night_that_breaks_another_promise_is_not_shorter() -> None:
    """What is kept breaks the same promise."""
    night = replace(generate(1), faults=generate(3).faults)

    def attempt(nights: list[Night]) -> Iterator[tuple[Night, Outcome]]:
        for found in nights:
            yield found, Outcome(seed=1, digest="", broken=(Broken("another", 1.0, "broken"),))

    assert shrink(night, "rule", attempt) == night
