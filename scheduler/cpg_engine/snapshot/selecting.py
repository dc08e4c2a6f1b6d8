"""Which nodes a selector selects, over columns rather than node by node."""

import numpy as np

from cpg_api.selectors import Expression, LabelMatcher, NodeTermMatcher
from cpg_engine.snapshot.axes import Flags, Rows
from cpg_engine.snapshot.cluster import ClusterColumns


def selected(matcher: LabelMatcher, cluster: ClusterColumns, rows: Rows) -> Flags:
    """Tell which nodes have all the labels."""
    answer = np.full(len(rows), not matcher.never, dtype=np.bool_)
    for key, value in matcher.equal:
        answer &= cluster.label(key).holds(Expression(key=key, operator="In", values=frozenset((value,))), rows)
    return answer


def term_holds(term: NodeTermMatcher, cluster: ClusterColumns, rows: Rows) -> Flags:
    """Tell which nodes a term selects."""
    answer = np.full(len(rows), not term.never, dtype=np.bool_)
    for expression in term.expressions:
        answer &= cluster.label(expression.key).holds(expression, rows)
    for field in term.fields:
        named = [cluster.row_of[name] for name in field.values if name in cluster.row_of]
        found = np.isin(rows, named)
        answer &= found if field.operator == "In" else ~found
    return answer
