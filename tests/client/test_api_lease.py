"""The record of a leader election in a Lease."""

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


async def test_the_record_is_read_with_its_version(server: "FakeServer", connection: Connection) -> None:
    """A Lease without a spec is an empty record; a missing Lease is None."""
    server.answers("GET", f"{FOLDER}/cpg", LEASE)
    server.answers("GET", f"{FOLDER}/cpg", {"metadata": {"resourceVersion": "8"}, "spec": None})
    server.answers("GET", f"{FOLDER}/cpg", status=404)
    lease = ApiLeaseStore(connection, "ns", "cpg")
    assert await lease.read() == ObservedRecord(RECORD, "7")
    assert await lease.read() == ObservedRecord(LeaseRecord(), "8")
    assert await lease.read() is None


async def test_another_refusal_is_raised(server: "FakeServer", connection: Connection) -> None:
    """A 403 is not the same as a missing Lease."""
    server.answers("GET", f"{FOLDER}/cpg", status=403)
    with pytest.raises(ApiError, match="403"):
        await ApiLeaseStore(connection, "ns", "cpg").read()


async def test_a_body_that_is_no_lease_is_an_error(server: "FakeServer", connection: Connection) -> None:
    """A response from a proxy does not make a leader."""
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


async def test_the_record_is_replaced_at_its_version(server: "FakeServer", connection: Connection) -> None:
    """Other fields of the Lease stay."""
    server.answers("PATCH", f"{FOLDER}/cpg", LEASE)
    assert await ApiLeaseStore(connection, "ns", "cpg").replace("6", RECORD) == ObservedRecord(RECORD, "7")
    assert msgspec.json.decode(server.seen[0].body) == {"metadata": {"resourceVersion": "6"}, "spec": SPEC}
    assert server.seen[0].headers["Content-Type"] == "application/merge-patch+json"
