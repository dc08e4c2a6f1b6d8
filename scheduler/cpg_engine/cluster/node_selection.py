"""Which nodes a pod's node selector, node affinity and tolerations select, by column instead of node by node."""

import numpy as np

from cpg_api.selectors import Expression, LabelMatcher, NodeTermMatcher
from cpg_api.tolerations import untolerated_taints
from cpg_engine.cluster.axes import Flags, Rows
from cpg_engine.cluster.nodes import NodeColumns
from cpg_engine.cluster.pod_classes import PodClass


def selected(matcher: LabelMatcher, cluster: NodeColumns, rows: Rows) -> Flags:
    """Return which nodes have all the labels."""
    answer = np.full(len(rows), not matcher.matches_nothing, dtype=np.bool_)
    for key, value in matcher.equal:
        if not answer.any():
            break
        answer &= cluster.label(key).holds(Expression(key=key, operator="In", values=frozenset((value,))), rows)
    return answer


def term_holds(term: NodeTermMatcher, cluster: NodeColumns, rows: Rows) -> Flags:
    """Return which nodes a term selects."""
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
    """Return which nodes the node selector and one of the required terms select."""
    answer = selected(pod_class.node_selector, cluster, rows)
    if pod_class.node_affinity is not None:
        either = np.zeros(len(rows), dtype=np.bool_)
        for term in pod_class.node_affinity.terms:
            either |= term_holds(term, cluster, rows)
        answer &= either
    return answer


def tolerated(pod_class: PodClass, cluster: NodeColumns, rows: Rows) -> Flags:
    """Return which nodes have only NoSchedule and NoExecute taints that are tolerated, testing each set once."""
    answer: Flags = cluster.by_taints(rows, lambda taints: len(untolerated_taints(taints, pod_class.tolerations))) == 0
    return answer
