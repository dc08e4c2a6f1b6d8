"""What a new leader has to know: all that was bound before it took the lease."""

from collections.abc import Iterator

from cpg_simulation.checks.changes import Change
from cpg_simulation.checks.values import Expectation, Finding, Rule


def _leaders_catch_up(change: Change) -> Iterator[Finding | Expectation]:
    """Yield the pods that a leader was not shown with their nodes, although they had these when it took the lease."""
    pod, lease = change.bound, change.leases.state(change.role, change.sent)
    if pod is None or lease.holder != change.process:
        return
    seen = change.knowledge.seen(change.write.user, "pods", change.sent)
    missed = [other for other in change.cluster.pods.values() if other.node and seen < other.bound_at <= lease.revision]
    if missed:
        names = ", ".join(map(str, missed))
        yield Finding(
            (str(pod), *map(str, missed)), f"{change.process} binds {pod}, and was not shown the nodes of {names}"
        )


LEADERS_CATCH_UP = Rule(
    name="Leaders catch up first",
    promise="A leader binds only after it was shown all pods that had a node when it took the lease.",
    check=_leaders_catch_up,
)
