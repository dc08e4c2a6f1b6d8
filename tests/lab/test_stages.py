"""The rules that kwok plays by."""

import yaml

from cpg_lab import folders


def test_four_rules_are_enough() -> None:
    """Nodes stay ready, bound pods run, deleted pods end and go; each rule says what it is about and what follows."""
    stages = list(yaml.safe_load_all(folders.stages_file().read_text()))
    assert [stage["metadata"]["name"] for stage in stages] == [
        "node-stays-ready",
        "pod-runs",
        "pod-of-a-job-ends",
        "pod-goes",
    ]
    assert [stage["spec"]["resourceRef"]["kind"] for stage in stages] == ["Node", "Pod", "Pod", "Pod"]
    assert all(stage["spec"]["selector"]["matchExpressions"] for stage in stages)
    assert stages[3]["spec"]["next"] == {"delete": True}
