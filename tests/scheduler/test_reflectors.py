"""What the reflectors of the scheduler read."""

from typing import TYPE_CHECKING, cast

import msgspec
import pytest
from msgspec import Raw

from cpg_api.core.pod import Pod
from cpg_api.integrations.job import COMPLETION_INDEX
from cpg_api.integrations.registry import Integrations
from cpg_api.parsing import Rejected
from cpg_api.scheduling.membership import membership
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.stores import LARGE_BYTES
from cpg_engine.snapshot import new_snapshot
from cpg_scheduler.cache.cluster import ClusterCache
from cpg_scheduler.reflectors import ReflectedCluster, ServedKinds, reflectors

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

    from cpg_client.connection import Connection

BIG = [{"name": f"c{number}", "image": "i", "env": []} for number in range(LARGE_BYTES // 10)]


def read(integrations: list[str], containers: list[object]) -> Pod:
    """Return what is kept of a pod of an Indexed Job."""
    cache = ClusterCache(new_snapshot(), {}, SCHEDULER_NAME)
    cluster = ReflectedCluster(cache, ServedKinds({}, {}), Integrations([SCHEDULER_NAME], integrations))
    found = reflectors(cast("Connection", None), cluster, cast("FilteringBoundLogger", None))
    (reflector,) = (one for one in found if one.source.kind is Pod)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    plain = {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "annotations": {COMPLETION_INDEX: "0"},
            "ownerReferences": [owner],
        },
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": containers},
    }
    stored = reflector._store.read(Raw(msgspec.json.encode(plain)))
    assert not isinstance(stored, Rejected)
    kept: Pod = stored.projected
    return kept


@pytest.mark.parametrize("containers", [[{"name": "c"}], BIG], ids=["small", "too large"])
def test_a_pod_has_the_group_that_follows_from_its_owner(containers: list[object]) -> None:
    """It is derived before its owner and annotations are dropped, and a pod too large keeps it; if it is on only."""
    assert membership(read(["job"], containers)).group == "job.train.pods"
    assert membership(read([], containers)).group is None
