"""The queue, from the page of the scheduler and from the user's own view."""

from msgspec.structs import replace
from tests.cli.cluster_caches import cache_of, ours

from cpg_api.meta import Condition, OwnerReference
from cpg_api.scheduling.names import POD_GROUP_INITIALLY_SCHEDULED
from cpg_cli.analysis.waiting import rows_of_cache, rows_of_leader
from cpg_engine.testing.builders import pod_group
from cpg_scheduler.units import owner_of

PAGE = b"""{"waiting": 7, "counts": {}, "roots": [{"root": "PodGroup team-a/train", "flavour": "crd",
"owner": "Job/train", "place": 1, "queue": "unschedulable", "priority": 5,
"since": "2026-01-01T00:00:00Z", "attempts": 3,
"nextAttempt": "in 2.0 s", "why": "0/1 nodes are available"}]}"""


def test_the_page_of_the_scheduler_becomes_rows() -> None:
    """With how many units wait in all."""
    total, (row,) = rows_of_leader(PAGE)
    assert (total, row.position, row.namespace, row.owner) == (7, 1, "team-a", "Job/train")
    assert (row.priority, row.attempts, row.next_try, row.reason) == (5, 3, "in 2.0 s", "0/1 nodes are available")


def test_the_own_view_is_in_the_order_of_priority_and_age() -> None:
    """Reasons are those of conditions; what only the scheduler remembers is not known."""
    condition = Condition(
        type=POD_GROUP_INITIALLY_SCHEDULED, status="False", reason="Unschedulable", message="0/4 domains"
    )
    low = pod_group("low", priority=1)
    low = replace(low, status=replace(low.status, conditions=(condition,)))
    owner = OwnerReference(kind="Job", name="train", controller=True)
    high = pod_group("high", priority=9)
    high = replace(high, metadata=replace(high.metadata, owner_references=(owner,)))
    pods = [ours("a", "low"), ours("b", "high"), ours("c"), ours("d", "absent"), ours("e", node_name="n")]
    cache = cache_of(groups=[low, high], pods=pods)
    rows = list(rows_of_cache(cache))
    assert [(row.position, row.root) for row in rows] == [
        (1, "PodGroup default/high"),
        (2, "PodGroup default/low"),
        (3, "PodGroup default/absent"),
        (4, "Pod default/c"),
    ]
    assert [row.reason for row in rows[1:]] == [
        "Unschedulable: 0/4 domains",
        "waiting for PodGroup default/absent, which does not exist",
        "",
    ]
    assert (rows[0].owner, rows[0].attempts, rows[0].next_try) == ("Job/train", None, "?")
    assert owner_of(cache, cache.unit_of(pods[2])) == ""
