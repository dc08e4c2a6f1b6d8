"""The condition of a victim names its preemptor."""

import pytest

from cpg_api.scheduling.forest import GroupKey
from cpg_engine.testing.builders import pod
from cpg_scheduler.preemption.jobs import (
    Preemptor,
)
from cpg_scheduler.preemption.victim_condition import is_victim_of, preemptor_in, victim_message
from cpg_scheduler.testing.job_runner import marked


def test_a_condition_tells_the_victims_of_one_preemptor_from_others() -> None:
    """By the UID at its end."""
    assert is_victim_of(marked("v"), "uid-train")
    assert not is_victim_of(marked("v"), "train")
    assert not is_victim_of(pod("v"), "uid-train")


@pytest.mark.parametrize("kind", ["Pod", "PodGroup", "CompositePodGroup"])
def test_a_condition_names_the_preemptor(kind: str) -> None:
    """So a new leader knows it; conditions of other schedulers are not ours."""
    preemptor = Preemptor(GroupKey(kind, "ml", "big"), "uid-1")
    assert preemptor_in("cpg-scheduler", victim_message("cpg-scheduler", preemptor)) == preemptor
    assert preemptor_in("cpg-scheduler", victim_message("other-scheduler", preemptor)) is None
    assert preemptor_in("cpg-scheduler", "default-scheduler: preempting to accommodate a higher priority pod") is None
