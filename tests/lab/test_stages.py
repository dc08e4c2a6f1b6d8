"""The stages of kwok."""

import yaml

from cpg_lab import folders


def test_there_are_four_stages() -> None:
    """Nodes stay ready, bound pods run, deleted pods end and are removed; each stage has a selector and an effect."""
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
