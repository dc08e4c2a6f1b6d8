"""Pods that claim devices, which nobody would give them."""

from typing import Any

import pytest

from cpg_api.core.pod import PodResourceClaim
from cpg_engine.testing.builders import node, pod, pod_group
from cpg_engine.testing.scenario_expectations import Expected

Live = Any

pytestmark = pytest.mark.e2e


def test_a_gang_that_claims_devices_waits_and_is_told_why(live: Live) -> None:
    """Bound, it would hang on its nodes for ever; who claims none is placed."""
    live.put_node(node("n1", cpu=4))
    claim = PodResourceClaim("gpu", resource_claim_name="shared")
    for name, claims in (("devices", (claim,)), ("plain", None)):
        live.put_group(pod_group(name, gang=2))
        for number in range(2):
            live.put_pod(pod(f"{name}-{number}", group=name, cpu=1, resource_claims=claims))
    why = "spec.resourceClaims: no devices are allocated by this scheduler"
    conditions = {"devices": f"False Unschedulable {why}", "devices-*": f"False Unschedulable {why}"}
    assert live.await_expected(Expected(conditions=conditions, bound={"plain": 2})) == []
