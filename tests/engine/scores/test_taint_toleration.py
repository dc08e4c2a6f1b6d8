"""PreferNoSchedule taints."""

import numpy as np

from cpg_api.core.node import Taint
from cpg_api.core.pod import Toleration
from cpg_engine.cluster.ledger import Ledger
from cpg_engine.scores import taint_toleration
from cpg_engine.testing.builders import node, pod

SOFT, HARD = "PreferNoSchedule", "NoSchedule"


def test_untolerated_soft_taints_are_counted() -> None:
    """Hard taints do not count, nor do soft ones that a toleration of their effect or of all effects tolerates."""
    ledger = Ledger()
    mixed = [Taint("a", "", SOFT), Taint("b", "", SOFT), Taint("c", "", SOFT), Taint("d", "", HARD)]
    ledger.put_node(node("n0"))
    ledger.put_node(node("n1", taints=mixed))
    plain = ledger.class_of(pod("p"))
    borne = (Toleration("a", "Exists"), Toleration("b", "Exists", effect=SOFT), Toleration("c", effect=HARD))
    bearing = ledger.class_of(pod("q", tolerations=borne))
    assert taint_toleration.raw(plain, ledger.cluster, np.arange(2)).tolist() == [0, 3]
    assert taint_toleration.raw(bearing, ledger.cluster, np.array([1, 0])).tolist() == [1, 0]
