"""Pods that claim devices, which this scheduler does not allocate."""

from typing import TYPE_CHECKING

import pytest

from cpg_api.core.pod import PodResourceClaim
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.scenario_expectations import Expected

if TYPE_CHECKING:
    from tests.e2e.scheduler.conftest import LiveCluster


pytestmark = pytest.mark.e2e


def test_a_gang_with_resource_claims_is_not_placed(live: "LiveCluster") -> None:
    """If it were bound, its pods would wait on their nodes for ever. Gangs without claims are bound."""
    live.put_node(node("n1", cpu=4))
    claim = PodResourceClaim("gpu", resource_claim_name="shared")
    for name, claims in (("devices", (claim,)), ("plain", None)):
        live.put_group(pod_group(name, gang=2))
        for number in range(2):
            live.put_pod(pod(f"{name}-{number}", group=name, cpu=1, resource_claims=claims))
    message = "spec.resourceClaims: no devices are allocated by this scheduler"
    conditions = {"devices": f"False WaitingForGroup {message}", "devices-*": f"False Invalid {message}"}
    assert live.await_expected(Expected(conditions=conditions, bound={"plain": 2})) == []
