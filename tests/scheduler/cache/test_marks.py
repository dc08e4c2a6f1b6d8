"""The index of what the API shows of preemptions."""

from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodCondition
from cpg_api.meta import Condition
from cpg_api.scheduling.podgroup import PodGroupStatus
from cpg_engine.testing.builders import pod, pod_group
from cpg_scheduler.cache.marks import PreemptionMarks


def marked(found: Pod, status: str) -> Pod:
    """Return a pod with a nomination and the condition of a victim."""
    said = PodCondition(type="DisruptionTarget", status=status, reason="PreemptionByScheduler")
    return replace(found, status=replace(found.status, nominated_node_name="n1", conditions=(said,)))


def test_marked_pods_are_found_until_their_marks_end() -> None:
    """Or until they are deleted; a mark that was retracted is none."""
    marks, before = PreemptionMarks(), pod("a")
    marks.replace_pod(None, before)
    assert (marks.nominated, marks.disrupted) == ({}, {})
    after = marked(before, "True")
    marks.replace_pod(before, after)
    assert (list(marks.nominated), list(marks.disrupted)) == ([after.metadata.uid], [after.metadata.uid])
    retracted = marked(before, "False")
    marks.replace_pod(after, retracted)
    assert (list(marks.nominated), list(marks.disrupted)) == ([after.metadata.uid], [])
    marks.replace_pod(retracted, None)
    assert (marks.nominated, marks.disrupted) == ({}, {})


def test_marked_groups_are_found_by_flavour() -> None:
    """Two flavours may have a group of the same name."""
    marks, before = PreemptionMarks(), pod_group("g")
    said = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler", message="")
    after = replace(before, status=PodGroupStatus(conditions=(said,)))
    marks.replace_group("crd", None, after)
    marks.replace_group("native", None, before)
    assert [(flavour, key.name) for flavour, key in marks.groups] == [("crd", "g")]
    marks.replace_group("crd", after, None)
    assert marks.groups == {}
