"""Cordoned nodes."""

import numpy as np
import pytest

from cpg_api.core.pod import Toleration
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters import node_unschedulable
from cpg_engine.testing.builders import node, pod

CORDON = "node.kubernetes.io/unschedulable"


@pytest.mark.parametrize(
    ("tolerations", "passed"),
    [
        (None, [True, False]),
        ((Toleration("other", "Exists"),), [True, False]),
        ((Toleration(CORDON, "Exists", effect="NoExecute"),), [True, False]),
        ((Toleration(CORDON, "Exists", effect="NoSchedule"),), [True, True]),
        ((Toleration(operator="Exists"),), [True, True]),
    ],
)
def test_a_cordon_rejects_pods_without_the_toleration(
    tolerations: tuple[Toleration, ...] | None, passed: list[bool]
) -> None:
    """A cordoned node passes for pods that tolerate the taint of a cordon, and for no others."""
    ledger = Ledger()
    ledger.put_node(node("open"))
    ledger.put_node(node("cordoned", unschedulable=True))
    pod_class = ledger.class_of(pod("p", tolerations=tolerations))
    assert passed == node_unschedulable.passes(pod_class, ledger.cluster, np.arange(2)).tolist()
