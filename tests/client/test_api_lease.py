"""How the record of an election is kept in a Lease."""

from typing import TYPE_CHECKING

import msgspec
import pytest

from cpg_client.connection import Connection
from cpg_client.errors import ApiError, UnreadableAnswerError
from cpg_client.leader_election import ApiLeaseStore, LeaseRecord, ObservedRecord

if TYPE_CHECKING:
    from tests.client.conftest import FakeServer

FOLDER = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
RECORD = LeaseRecord("me", 10, "2027-01-15T08:00:00.000000Z", "2027-01-15T08:00:01.000000Z", 1)
SPEC = {
    "holderIdentity": "me",
    "leaseDurationSeconds": 10,
    "acquireTime": "2027-01-15T08:00:00.000000Z",
    "renewTime": "2027-01-15T08:00:01.000000Z",
    "leaseTransitions": 1,
}
LEASE = {"metadata": {"resourceVersion": "7"}, "spec": {**SPEC, "strategy": "OldestEmulationVersion"}}


async def test_the_record_is_read(server: "FakeServer", connection: Connection) -> None:
    """With its version; a Lease that nobody has filled in is an empty record, and none at all is none."""
    server.answers("GET", f"{FOLDER}/cpg", LEASE)
    server.answers("GET", f"{FOLDER}/cpg", {"metadata": {"resourceVersion": "8"}, "spec": None})
    server.answers("GET", f"{FOLDER}/cpg", status=404)
    lease = ApiLeaseStore(connection, "ns", "cpg")
    assert await lease.read() == ObservedRecord(RECORD, "7")
    assert await lease.read() == ObservedRecord(LeaseRecord(), "8")
    assert await lease.read() is None


async def test_another_refusal_is_raised(server: "FakeServer", connection: Connection) -> None:
    """To be forbidden to look is not to find nothing."""
    server.answers("GET", f"{FOLDER}/cpg", status=403)
    with pytest.raises(ApiError, match="403"):
        await ApiLeaseStore(connection, "ns", "cpg").read()


async def test_what_is_no_lease_is_named(server: "FakeServer", connection: Connection) -> None:
    """An answer from something in between does not make a leader."""
    server.answers("GET", f"{FOLDER}/cpg", b"<html>")
    with pytest.raises(UnreadableAnswerError, match="not a Lease"):
        await ApiLeaseStore(connection, "ns", "cpg").read()


async def test_the_record_is_created(server: "FakeServer", connection: Connection) -> None:
    """As a Lease of that name."""
    server.answers("POST", FOLDER, LEASE, status=201)
    assert await ApiLeaseStore(connection, "ns", "cpg").create(RECORD) == ObservedRecord(RECORD, "7")
    assert msgspec.json.decode(server.seen[0].body) == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "cpg"},
        "spec": SPEC,
    }


async def test_the_record_is_replaced(server: "FakeServer", connection: Connection) -> None:
    """Only after the version that was seen, and leaving alone whatever else the Lease says."""
    server.answers("PATCH", f"{FOLDER}/cpg", LEASE)
    assert await ApiLeaseStore(connection, "ns", "cpg").replace("6", RECORD) == ObservedRecord(RECORD, "7")
    assert msgspec.json.decode(server.seen[0].body) == {"metadata": {"resourceVersion": "6"}, "spec": SPEC}
    assert server.seen[0].headers["Content-Type"] == "application/merge-patch+json"
