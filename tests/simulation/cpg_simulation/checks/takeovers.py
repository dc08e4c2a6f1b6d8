"""What a new leader has to know: all that was bound before it took the lease."""

from collections.abc import Iterator
from dataclasses import dataclass

from cpg_simulation.checks.cluster import ObservedCluster
from cpg_simulation.checks.knowledge import Knowledge
from cpg_simulation.checks.leases import LeaseState
from cpg_simulation.checks.values import Finding, Rule


@dataclass(frozen=True)
class SentBind:
    """A bind at the moment at which a process sends it, whatever becomes of it; ``lease`` is that of its program."""

    pod: str
    process: str
    now: float
    lease: LeaseState
    cluster: ObservedCluster
    knowledge: Knowledge


def _leaders_catch_up(bind: SentBind) -> Iterator[Finding]:
    """Yield the pods that a leader was not shown with their nodes, although they had these when it took the lease."""
    seen = bind.knowledge.seen(bind.process, "pods", bind.now)
    if bind.lease.holder != bind.process:
        return
    missed = [str(pod) for pod in bind.cluster.pods.values() if pod.node and seen < pod.bound_at <= bind.lease.revision]
    if missed:
        yield Finding(
            (f"Pod {bind.pod}", *missed),
            f"{bind.process} binds Pod {bind.pod}, and was not shown the nodes of {', '.join(missed)}",
        )


LEADERS_CATCH_UP = Rule(
    name="Leaders catch up first",
    promise="A leader binds only after it was shown all pods that had a node when it took the lease.",
    check=_leaders_catch_up,
)
