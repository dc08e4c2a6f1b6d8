"""What a new leader has to know, and one that was stopped: all that has happened until it goes on."""

from collections.abc import Iterator
from dataclasses import dataclass

from cpg_client.stall_guard import MAX_SECONDS_STALLED
from cpg_simulation.checks.cluster import ObservedCluster
from cpg_simulation.checks.knowledge import Knowledge
from cpg_simulation.checks.leases import LeaseState
from cpg_simulation.checks.values import Finding, Rule

SECONDS_OF_STALL = 1.05 * MAX_SECONDS_STALLED
"""Seconds of a stop that a clock notices which is a little slow."""


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


def _stopped_leaders_catch_up(bind: SentBind) -> Iterator[Finding]:
    """Yield that a process that was stopped was not shown all that had happened to pods and nodes meanwhile."""
    there = bind.knowledge.resumed.get(bind.process, {})
    for resource in ("pods", "nodes"):
        seen = bind.knowledge.seen(bind.process, resource, bind.now)
        if seen < there.get(resource, 0):
            yield Finding(
                (f"Pod {bind.pod}",),
                f"{bind.process} binds Pod {bind.pod} after a stop, and was shown the {resource} up to {seen} of"
                f" {there[resource]}",
            )


LEADERS_CATCH_UP = Rule(
    name="Leaders catch up first",
    promise="A leader binds only after it was shown all pods that had a node when it took the lease.",
    check=_leaders_catch_up,
)
STOPPED_LEADERS_CATCH_UP = Rule(
    name="Stopped leaders catch up first",
    promise=(
        f"After a stop of more than {MAX_SECONDS_STALLED:g} s a leader binds only after it was shown all that had"
        " happened to pods and nodes until then."
    ),
    check=_stopped_leaders_catch_up,
)
