"""Pods of the largest size that the API server takes do not end a scheduler with a limit of memory."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_client.resources import PODS

if TYPE_CHECKING:
    from tests.e2e.scheduler.crashes.conftest import CreateRequest, Testbed

pytestmark = pytest.mark.e2e
BYTES = 1_300_000
VALUES = [f"value-{number}" for number in range(BYTES // 15)]
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "absent", "operator": "In", "values": VALUES}]}]}
ENVIRONMENT = [{"name": f"E{number}", "value": "x" * 100_000} for number in range(BYTES // 100_000)]
LARGE: Mapping[str, dict[str, Any]] = {
    "environment": {},
    "tolerations": {"tolerations": [{"key": f"k{n}", "operator": "Exists"} for n in range(BYTES // 36)]},
    "affinity": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}}},
}
PODS_OF_EACH = 10
MAX_MEGABYTES = 150
SECONDS = 60.0


def large_pods(testbed: "Testbed", kind: str, start: int = 0) -> list["CreateRequest"]:
    """Return large pods of one kind."""
    found = [testbed.pod(f"{kind}-{n}", **LARGE[kind]) for n in range(start, start + PODS_OF_EACH)]
    for _, body in found if kind == "environment" else ():
        body["spec"]["containers"][0]["env"] = ENVIRONMENT
    return found


async def wait_for_pod(testbed: "Testbed", name: str, expected: str) -> None:
    """Wait until a pod is bound, or the message of its condition has a text; a list would be all large pods."""

    async def is_there() -> bool:
        pod = msgspec.json.decode(await testbed.connection.get(PODS.path(testbed.namespace, name)))
        messages = [found.get("message", "") for found in pod["status"].get("conditions", ())]
        return any(expected in message for message in messages) if expected else "nodeName" in pod["spec"]

    await testbed.wait_until(is_there, SECONDS, f"{expected or 'node'} of {name}")


async def test_large_pods_take_little_memory(testbed: "Testbed") -> None:
    """They are read at the start and from a watch; those of which scheduling reads little are bound, others refused.

    The peak is 75 MB. Thrice as many pods took 600 MB when lists were paged, and the pods were kept whole.
    """
    created = [found for kind in LARGE for found in large_pods(testbed, kind)]
    later = large_pods(testbed, "environment", PODS_OF_EACH)
    await testbed.create(*created)
    replica = testbed.start_replica("--no-leader-elect")
    for name in ("tolerations-0", "affinity-0"):
        await wait_for_pod(testbed, name, "the pod is too large")
    await testbed.create(*later, testbed.pod("small"))
    for name in ("environment-0", f"environment-{2 * PODS_OF_EACH - 1}", "small"):
        await wait_for_pod(testbed, name, "")
    peak = replica.process.peak_megabytes()
    for _, body in (*created, *later):  # one by one, because the answer to the deletion of all has all of them
        await testbed.delete(PODS, body["metadata"]["name"])
    assert peak < MAX_MEGABYTES
