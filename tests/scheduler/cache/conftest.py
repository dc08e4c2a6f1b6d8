"""The cluster that most tests of the cache begin with."""

import pytest

from cpg_engine.testing.builders import node, pod, pod_group
from cpg_scheduler.testing.stage import Stage


@pytest.fixture
def stage() -> Stage:
    """Return a node with a running pod, a group with a pending member, and a pending single pod."""
    running, member = pod("running", cpu=1, node_name="n1"), pod("member", cpu=1, group="pg")
    return Stage(node("n1"), running, pod_group("pg", gang=2), member, pod("single", cpu=1))
