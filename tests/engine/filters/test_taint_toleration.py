"""Taints that reject pods; tolerations are tested with ``cpg_api.tolerations``."""

import numpy as np
import pytest

from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.filters import taint_toleration
from cpg_engine.testing.builders import node, pod

BOTH = [Taint("a", "1", "NoSchedule"), Taint("b", "", "NoExecute")]
A = Toleration("a", "Equal", "1")
B = Toleration("b", "Exists")


@pytest.mark.parametrize(
    ("tolerations", "passed"),
    [
        ((), [True, False, False, True]),
        ((A,), [True, True, False, True]),
        ((B,), [True, False, False, True]),
        ((A, B), [True, True, True, True]),
        ((Toleration("a", "Equal", "2"), B), [True, False, False, True]),
        ((Toleration(operator="Exists"),), [True, True, True, True]),
    ],
)
def test_every_hard_taint_must_be_tolerated(tolerations: tuple[Toleration, ...], passed: list[bool]) -> None:
    """One untolerated NoSchedule or NoExecute taint is enough to reject; a soft one never does."""
    ledger = Ledger()
    for name, found in (("n0", []), ("n1", BOTH[:1]), ("n2", BOTH), ("n3", [Taint("c", "", "PreferNoSchedule")])):
        ledger.put_node(node(name, taints=found))
    pod_class = ledger.class_of(pod("p", tolerations=tolerations))
    assert passed == taint_toleration.passes(pod_class, ledger.cluster, np.arange(4)).tolist()
