"""Whose nomination a pod shows, by its managed fields."""

import msgspec
import pytest

from cpg_api.core.pod import Pod
from cpg_api.parsing import Rejected
from cpg_client.connection import FIELD_MANAGER
from cpg_scheduler.cache.nominations import own_nomination, read_pod

NOMINATION: dict[str, dict[str, object]] = {"f:status": {"f:conditions": {}, "f:nominatedNodeName": {}}}
OURS = {"manager": FIELD_MANAGER, "fieldsV1": NOMINATION}
THEIRS = {"manager": "autoscaler", "fieldsV1": NOMINATION}
CREATOR = {"manager": "kubectl", "fieldsV1": {"f:spec": {"f:containers": {}}}}
KUBELET = {"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}}


def raw(managed: object, node: str = "n1", **spec: object) -> msgspec.Raw:
    """Return a pod with a nomination and managed fields as the API server sends it."""
    metadata = {"name": "p", "namespace": "default", "managedFields": managed}
    return msgspec.Raw(msgspec.json.encode({"metadata": metadata, "spec": spec, "status": {"nominatedNodeName": node}}))


@pytest.mark.parametrize(
    ("managed", "own"),
    [
        ([CREATOR, KUBELET, OURS], "n1"),
        ([CREATOR, THEIRS], ""),
        ([OURS, THEIRS], ""),
        ([CREATOR, KUBELET], "n1"),
        ([], "n1"),
        ("odd", "n1"),
    ],
    ids=["ours", "theirs", "both", "none", "no managed fields", "unreadable"],
)
def test_the_manager_of_the_field_has_nominated_the_pod(managed: object, own: str) -> None:
    """Without a manager it counts as ours, so that it is cleared."""
    found = read_pod(raw(managed), Pod)
    assert isinstance(found, Pod)
    assert (own_nomination(found), found.status.nominated_node_name) == (own, "n1")


def test_managed_fields_are_read_of_nominated_pending_pods_alone() -> None:
    """All others are decoded once."""
    for found in (read_pod(raw([THEIRS], ""), Pod), read_pod(raw([THEIRS], nodeName="n1"), Pod)):
        assert isinstance(found, Pod)
        assert not found.is_nominated_by_other
    assert isinstance(read_pod(msgspec.Raw(b'{"spec": 1}'), Pod), Rejected)
