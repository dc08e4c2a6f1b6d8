"""Which nodes a selector selects, a pod's affinity or its tolerations, over columns rather than node by node."""

import numpy as np

from cpg_api.selectors import Expression, LabelMatcher, NodeTermMatcher
from cpg_api.tolerations import untolerated_taints
from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass


def selected(matcher: LabelMatcher, cluster: NodeColumns, rows: Rows) -> Flags:
    """Tell which nodes have all the labels."""
    answer = np.full(len(rows), not matcher.matches_nothing, dtype=np.bool_)
    for key, value in matcher.equal:
        if not answer.any():
            break
        answer &= cluster.label(key).holds(Expression(key=key, operator="In", values=frozenset((value,))), rows)
    return answer


def term_holds(term: NodeTermMatcher, cluster: NodeColumns, rows: Rows) -> Flags:
    """Tell which nodes a term selects."""
    answer = np.full(len(rows), not term.matches_nothing, dtype=np.bool_)
    for expression in term.expressions:
        if not answer.any():
            break
        answer &= cluster.label(expression.key).holds(expression, rows)
    for field in term.fields:
        named = [cluster.row_of[name] for name in field.values if name in cluster.row_of]
        found = np.isin(rows, named)
        answer &= found if field.operator == "In" else ~found
    return answer


def meets_affinity(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Flags:
    """Tell which nodes the pod's selector and one of its required terms select."""
    answer = selected(pod_class.node_selector, cluster, rows)
    if pod_class.node_affinity is not None:
        either = np.zeros(len(rows), dtype=np.bool_)
        for term in pod_class.node_affinity.terms:
            either |= term_holds(term, cluster, rows)
        answer &= either
    return answer


def tolerated(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Flags:
    """Tell which nodes have no NoSchedule or NoExecute taint that the pod does not bear; each set is asked once."""
    answer: Flags = cluster.by_taints(rows, lambda taints: len(untolerated_taints(taints, pod_class.tolerations))) == 0
    return answer
