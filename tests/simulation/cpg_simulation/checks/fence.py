"""The write fence: no process writes without its lease."""

from collections.abc import Iterator

from cpg_simulation.checks.changes import Change
from cpg_simulation.checks.leases import LEASES
from cpg_simulation.checks.values import Expectation, Finding, Rule


def _only_the_leader_writes(change: Change) -> Iterator[Finding | Expectation]:
    """Yield that a process has sent a write without its lease. Leases themselves are written by every candidate.

    A restore of etcd may take back the lease of a process, which finds out when it renews it.
    """
    write = change.write
    if not change.role or write.resource == LEASES or change.is_outdated:
        return
    state = change.leases.state(change.role, change.sent)
    if state.holder == "?" or (state.holder == change.process and change.sent <= state.until):
        return
    holder = f"{state.holder} until {state.until:.3f} s" if state.holder else "no process"
    yield Finding(
        (f"{write.resource} {write.namespace}/{write.name}".replace(" /", " "),),
        f"{change.process} has sent a {write.verb} at {change.sent:.3f} s, when the lease was held by {holder}",
    )


ONLY_THE_LEADER_WRITES = Rule(
    name="Only the leader writes",
    promise="Each write was sent while its process held the lease, by the record and the time of the API server.",
    check=_only_the_leader_writes,
)
