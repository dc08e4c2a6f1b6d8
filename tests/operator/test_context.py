"""What the steps read about a tree: which scheduler it belongs to."""

import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodStatus
from cpg_engine.testing.builders import pod
from cpg_operator.context import is_foreign

OURS, THEIRS = (
    replace(pod(name), spec=replace(pod(name).spec, scheduler_name=scheduler))
    for name, scheduler in (("ours", "mine"), ("theirs", "other"))
)

NAMES = frozenset({"mine", "second"})


def ended(one: Pod) -> Pod:
    """Return a pod that has succeeded."""
    return replace(one, status=PodStatus(phase="Succeeded"))


def terminating(one: Pod) -> Pod:
    """Return a pod that is being deleted."""
    return replace(one, metadata=replace(one.metadata, deletion_timestamp="2026-01-01T00:00:00Z"))


@pytest.mark.parametrize("is_crd", [True, False], ids=["crd", "native"])
def test_a_tree_is_foreign_if_no_living_pod_names_our_scheduler(*, is_crd: bool) -> None:
    """Pods that have ended or terminate count only where none lives."""
    for ours in ([OURS], [THEIRS, OURS], [ended(THEIRS), OURS], [ended(OURS), terminating(THEIRS)]):
        assert not is_foreign(ours, NAMES, is_crd=is_crd)
    for theirs in ([THEIRS], [ended(OURS), THEIRS], [terminating(OURS), THEIRS], [terminating(THEIRS)]):
        assert is_foreign(theirs, NAMES, is_crd=is_crd)


def test_without_pods_a_tree_of_our_own_api_is_ours() -> None:
    """A native one may be any scheduler's."""
    assert not is_foreign([], NAMES, is_crd=True)
    assert is_foreign([], NAMES, is_crd=False)


def test_one_operator_may_serve_several_schedulers() -> None:
    """Trees of each of them are ours."""
    second = replace(OURS, spec=replace(OURS.spec, scheduler_name="second"))
    assert not is_foreign([second, THEIRS], NAMES, is_crd=False)
