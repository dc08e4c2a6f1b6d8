"""Nights are played in child processes, and one that fails in any way is a finding."""

import os
import time
from unittest import mock

from cpg_simulation import runner
from cpg_simulation.nights.generator import generate
from cpg_simulation.nights.plan import Night
from cpg_simulation.outcome import Outcome


def test_each_night_has_its_outcome() -> None:
    """They come as they end."""
    outcomes = [*runner.play_all([generate(seed) for seed in range(5)], outcome_of, 2)]
    assert sorted(outcome.seed for outcome in outcomes) == [*range(5)]
    assert not any(outcome.broken for outcome in outcomes)


def test_a_defect_of_the_simulation_is_a_finding() -> None:
    """It is reported with its trace."""

    def fail(_: Night) -> Outcome:
        raise RuntimeError("a defect")

    (outcome,) = runner.play_all([generate(7)], fail, 1)
    assert outcome.broken[0].rule == "the simulation works"
    assert "a defect" in outcome.broken[0].sentence


def test_a_night_that_hangs_or_dies_is_a_finding() -> None:
    """The others are played nevertheless."""

    def play(night: Night) -> Outcome:
        if night.seed == 1:
            while True:
                pass
        if night.seed == 2:
            os._exit(0)
        time.sleep(0.01)
        return outcome_of(night)

    with mock.patch.object(runner, "CPU_SECONDS_OF_NIGHT", 1):
        outcomes = {one.seed: one for one in runner.play_all([generate(seed) for seed in range(4)], play, 2)}
    assert "ended by signal" in outcomes[1].broken[0].sentence
    assert "ended without a result" in outcomes[2].broken[0].sentence
    assert not outcomes[0].broken
    assert not outcomes[3].broken


def outcome_of(night: Night) -> Outcome:
    """Return the outcome of a night in which nothing happens."""
    return Outcome(seed=night.seed, digest="")
