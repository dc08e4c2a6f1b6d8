"""The audit log of the API server: which replica has written what, and which one held the lease."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from cpg_api.decoding import decode
from cpg_chaos.record import RunRecord

CREDENTIAL = "authentication.kubernetes.io/credential-id"
IN_FLIGHT_SECONDS = 1.0
"""Requests were in flight if they arrive within so many seconds after a takeover; faults of the replica and of the API
server do not count."""
FENCED = {"pods", "podgroups", "compositepodgroups", "workloads"}
"""Resources that only the replica with the lease may write."""
EVENT_START = re.compile(r"(?=\{\"kind\":\"Event\")")


class AuditedWrite(NamedTuple):
    """A write of one of our replicas that has succeeded."""

    received: float
    completed: float
    replica: str
    verb: str
    resource: str
    name: str
    is_lease: bool

    @property
    def part(self) -> str:
        """The program: scheduler or operator."""
        return self.replica.partition("-")[0]


class AuditLog:
    """Reads on from where it has stopped; a line that is not complete yet is read later."""

    def __init__(self, path: Path, replicas: Mapping[str, str]) -> None:
        """``replicas`` has the name of each replica by the identity of its credential."""
        self._path, self._replicas, self._offset = path, replicas, 0
        self.writes = 0

    def read(self) -> list[AuditedWrite]:
        """Return new writes of our replicas, in the order in which they were received."""
        with self._path.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        found = []
        for event in events_of(whole.decode(errors="replace")):
            self.writes += 1
            if (write := self._write_of(event)) is not None:
                found.append(write)
        return sorted(found)

    def _write_of(self, event: Mapping[str, Any]) -> AuditedWrite | None:
        extra = event.get("user", {}).get("extra") or {}
        replica = self._replicas.get(next(iter(extra.get(CREDENTIAL, ())), ""))
        if replica is None or not 200 <= event.get("responseStatus", {}).get("code", 0) < 300:
            return None
        target = event.get("objectRef", {})
        resource, subresource = target.get("resource", ""), target.get("subresource", "")
        return AuditedWrite(
            received=_seconds(event["requestReceivedTimestamp"]),
            completed=_seconds(event["stageTimestamp"]),
            replica=replica,
            verb="bind" if subresource == "binding" else event["verb"],
            resource=resource,
            name=target.get("name", ""),
            is_lease=resource == "leases",
        )


class LeaseCheck:
    """Writes come only from the replica that holds the lease."""

    def __init__(self, record: RunRecord) -> None:
        """No replica holds a lease yet."""
        self._record = record
        self._holders: dict[str, tuple[str, float]] = {}

    def check(self, writes: list[AuditedWrite]) -> None:
        """Check writes in their order."""
        for write in writes:
            holder, since = self._holders.get(write.part, ("", 0.0))
            if write.is_lease:
                if write.replica != holder:
                    self._holders[write.part] = (write.replica, write.completed)
                    self._record.counts[f"takeovers of {write.part}s"] += bool(holder)
            elif write.resource in FENCED and holder not in {"", write.replica} and write.received > since:
                self._check_late(write, holder, since)

    def _check_late(self, write: AuditedWrite, holder: str, since: float) -> None:
        """Count a request that was in flight, and report a later one."""
        late = write.received - since
        if self._record.calm_seconds(since, write.received, write.replica) <= IN_FLIGHT_SECONDS:
            self._record.counts["requests in flight at a takeover"] += 1
            return
        what = f"{write.replica}: {write.verb} {write.resource}/{write.name} {late:.2f} s after {holder} took the lease"
        self._record.violate("only the replica with the lease writes", what, write.received)


def events_of(text: str) -> Iterator[dict[str, Any]]:
    """Yield the events of a log; a killed API server leaves half a line, to which the next one appends."""
    for line in text.splitlines():
        for piece in EVENT_START.split(line):
            try:
                yield decode(piece)
            except msgspec.DecodeError:
                continue


def _seconds(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
