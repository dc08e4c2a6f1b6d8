"""The checks that the tests of this folder rely on find what is wrong."""

from typing import Any

import pytest
from tests.e2e.devices.churn import offered
from tests.e2e.devices.device_rules import given_twice, unusable

from cpg_lab import devices

Plain = dict[str, Any]
SLICES = offered(["n1"], is_newer=True)
NODES = [{"metadata": {"name": name, "labels": {"zone": name}}} for name in ("n1", "n2")]
ON_N1 = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]}

pytestmark = pytest.mark.e2e


def result(pool: str, name: str, **more: object) -> Plain:
    """Return a device of a claim."""
    return {"request": "gpu", "driver": devices.DRIVER, "pool": pool, "device": name, **more}


def claim(name: str, *results: Plain, user: str = "", selector: Plain | None = None) -> Plain:
    """Return a claim that has these devices."""
    allocation = {"devices": {"results": list(results)}, **({"nodeSelector": selector} if selector else {})}
    users = [{"resource": "pods", "name": user, "uid": user}] if user else []
    return {"metadata": {"name": name}, "status": {"allocation": allocation, "reservedFor": users}}


def card(amount: str) -> Plain:
    """Return a share of the card."""
    return result("n1-card", "card", consumedCapacity={"bandwidth": amount})


@pytest.mark.parametrize(
    ("claims", "problem"),
    [
        ([claim("a", result("n1", "gpu-0")), claim("b", result("n1", "gpu-1"))], None),
        ([claim("a", result("n1", "gpu-0")), claim("b", result("n1", "gpu-0"))], "is given to ['a', 'b']"),
        ([claim("a", result("n1", "gpu-0")), claim("b", result("n1", "gpu-0", adminAccess=True))], None),
        ([claim("a", result("n1", "gpu-9"))], "is in no slice"),
        ([claim("a", card("5Gi")), claim("b", card("5Gi"))], None),
        ([claim("a", card("5Gi")), claim("b", card("6Gi"))], "of 10Gi bandwidth"),
        ([claim("a", result("n1-parts", "half-0")), claim("b", result("n1-parts", "half-1"))], None),
        ([claim("a", result("n1-parts", "half-0")), claim("b", result("n1-parts", "whole"))], "of 40Gi memory in n1"),
    ],
)
def test_a_device_that_is_given_twice_is_found(claims: list[Plain], problem: str | None) -> None:
    """Also one of which more is consumed than there is, and partitions that exclude each other."""
    found = given_twice(claims, SLICES)
    assert len(found) == (0 if problem is None else 1)
    assert problem is None or problem in found[0]


@pytest.mark.parametrize(
    ("found", "node", "problem"),
    [
        (claim("c", result("n1", "gpu-0"), user="p", selector=ON_N1), "n1", None),
        (claim("c", result("n1", "gpu-0"), user="p", selector=ON_N1), "n2", "cannot reach"),
        (claim("c", result("n1", "gpu-0"), user="p", selector=devices.node_selector({"zone": "n2"})), "n2", None),
        (claim("c", result("n1", "gpu-0"), user="p", selector=devices.node_selector({"zone": "n2"})), "n1", "cannot"),
        (claim("c", result("n1", "gpu-0"), user="q"), "n1", "is not reserved for p"),
        (claim("c", user="p"), "n1", "without devices"),
        (claim("c", user="p"), "", None),
    ],
)
def test_a_bound_pod_that_cannot_use_its_claim_is_found(found: Plain, node: str, problem: str | None) -> None:
    """A pod without a node needs nothing yet."""
    spec = {"nodeName": node, **devices.pod_claims("c")}
    problems = unusable([{"metadata": {"name": "p", "uid": "p"}, "spec": spec, "status": {}}], [found], NODES)
    assert len(problems) == (0 if problem is None else 1)
    assert problem is None or problem in problems[0]
