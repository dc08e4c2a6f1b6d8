"""Which process holds the lease of its program, by the record and the time of the API server."""

from bisect import bisect_right
from typing import NamedTuple

from cpg_simulation.checks.values import RecordedWrite

LEASES = "leases.coordination.k8s.io"


class LeaseState(NamedTuple):
    """A record: since when it is there, the process that wrote it, and until when that holds the lease."""

    since: float
    holder: str
    until: float
    revision: int = 0
    """The revision with which its holder took the lease."""


class Leases:
    """The records of all leases that our processes have written."""

    def __init__(self) -> None:
        self._records: dict[str, list[LeaseState]] = {}
        self._lease_of: dict[str, str] = {}

    def apply(self, write: RecordedWrite, role: str, process: str) -> None:
        """Take a write of a lease."""
        name = f"{write.namespace}/{write.name}"
        if role:
            self._lease_of[role] = name
        spec = (write.new or {}).get("spec") or {}
        holder = process if spec.get("holderIdentity") else ""
        until = write.time + float(spec.get("leaseDurationSeconds") or 0)
        records = self._records.setdefault(name, [])
        revision = records[-1].revision if records and records[-1].holder == holder else write.revision
        records.append(LeaseState(write.time, holder if role else "?", until, revision))

    def forget(self) -> None:
        """Forget all records: they are others now, and nothing is known about them before they are written again."""
        for records in self._records.values():
            records.append(LeaseState(records[-1].since, "?", records[-1].until))

    def state(self, role: str, time: float) -> LeaseState:
        """Return the record of a program at a time; a ``?`` as holder says that it was changed by another client."""
        records = self._records.get(self._lease_of.get(role, ""), [])
        place = bisect_right(records, time, key=lambda record: record.since)
        return records[place - 1] if place else LeaseState(time, "", time)
