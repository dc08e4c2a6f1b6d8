"""The Workloads of a DisaggregatedSet: one for each revision, made from its LeaderWorkerSets."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.integrations import disaggregatedset, leaderworkerset
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import DERIVED_FROM, SCHEDULER_NAME
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD, KINDS
from cpg_client.resources import Resource
from cpg_client.stores import Added, Deleted, Modified, Synced
from cpg_operator.testing.fixtures import RecordingQueue
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.workloads.adoption import adopt
from cpg_operator.workloads.plan import desired_groups
from cpg_operator.writes import TreeKey, Verb, Write

SETS = Resource("disaggregatedset.x-k8s.io", "v1", "disaggregatedsets", "DisaggregatedSet")
ROLES = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")
KEY = TreeKey(CRD, GroupKey("DisaggregatedSet", "default", "pd"))
TEMPLATE = {"spec": {"schedulerName": SCHEDULER_NAME}}


class Rollout:
    """A view with a DisaggregatedSet of two roles."""

    def __init__(self) -> None:
        """Start with the set, and no LeaderWorkerSets yet."""
        self.queue = RecordingQueue()
        self.view = ClusterView({CRD: KINDS[CRD]}, self.queue)
        self.view.owners.add_kind(disaggregatedset.KIND, SETS)
        self.view.owners.add_kind(leaderworkerset.KIND, ROLES)
        spec = {"roles": [{"name": "prefill"}, {"name": "decode"}]}
        plain = {"metadata": {"name": "pd", "namespace": "default", "uid": "u"}, "spec": spec}
        self.view.owners.take("DisaggregatedSet", Added("k", msgspec.convert(plain, disaggregatedset.DisaggregatedSet)))
        self._sets: dict[str, Any] = {}

    def put(self, name: str, replicas: int = 1) -> None:
        """Put a LeaderWorkerSet of the DisaggregatedSet into the view."""
        spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}}
        owner = {"apiVersion": SETS.api_version, "kind": SETS.kind, "name": "pd", "uid": "u", "controller": True}
        meta = {"name": name, "namespace": "default", "uid": name, "ownerReferences": [owner]}
        found = msgspec.convert({"metadata": meta, "spec": spec}, leaderworkerset.LeaderWorkerSet)
        old, self._sets[name] = self._sets.get(name), found
        self.view.owners.take("LeaderWorkerSet", Added("k", found) if old is None else Modified("k", old, found))

    def delete(self, name: str) -> None:
        """Remove a LeaderWorkerSet."""
        self.view.owners.take("LeaderWorkerSet", Deleted("k", self._sets.pop(name)))

    def writes(self, key: TreeKey = KEY) -> tuple[Write, ...]:
        """Return the writes for the DisaggregatedSet."""
        return adopt(self.view, key, frozenset({SCHEDULER_NAME})).writes

    def create(self) -> Workload:
        """Create the one missing Workload in the view, as the API server would; return it."""
        (write,) = self.writes()
        assert write.verb is Verb.CREATE
        found = msgspec.convert(write.body, Workload)
        meta = replace(found.metadata, uid=found.metadata.name, resource_version="1")
        found = replace(found, metadata=meta)
        self.view.put(CRD, found)
        return found


@pytest.fixture
def rollout() -> Rollout:
    """Return a DisaggregatedSet."""
    return Rollout()


def test_a_revision_gets_a_workload_when_it_has_all_roles(rollout: Rollout) -> None:
    """Its groups have the names that pods derive."""
    rollout.put("pd-1-decode", 2)
    assert rollout.writes() == ()
    rollout.queue.added.clear()
    rollout.put("pd-1-prefill")
    assert KEY in rollout.queue.added
    made = rollout.create()
    assert made.metadata.name == "disaggregatedset.pd.1"
    assert made.metadata.annotations[DERIVED_FROM] == "disaggregatedset/pd"
    assert [one.uid for one in made.metadata.owner_references] == ["u"]
    names = [group.metadata.name for group in desired_groups(made, api_version="v", native=False)]
    leaves = sorted(name.removeprefix("disaggregatedset.pd.1.") for name in names if name[-1].isdigit())
    assert leaves == ["decode-replica.0", "decode-replica.1", "prefill-replica.0"]
    assert rollout.writes() == ()


def test_its_leader_worker_sets_have_no_trees_of_their_own(rollout: Rollout) -> None:
    """Others have."""
    rollout.put("pd-1-decode")
    key = TreeKey(CRD, GroupKey("LeaderWorkerSet", "default", "pd-1-decode"))
    assert rollout.writes(key) == ()
    found = replace(rollout.view.owners.get(key.anchor), metadata=rollout.view.owners.get(KEY.anchor).metadata)
    rollout.view.owners.take("LeaderWorkerSet", Added("k", found))
    (write,) = rollout.writes(TreeKey(CRD, GroupKey("LeaderWorkerSet", "default", "pd")))
    assert write.target.name == "lws.pd"


def test_one_role_is_scaled(rollout: Rollout) -> None:
    """Only its replicas change."""
    rollout.put("pd-1-decode")
    rollout.put("pd-1-prefill")
    rollout.create()
    rollout.put("pd-1-prefill", 3)
    (write,) = rollout.writes()
    (root,) = write.body["spec"]["compositePodGroupTemplates"]
    sizes = {role["name"]: role["podGroupTemplates"][0]["replicas"] for role in root["compositePodGroupTemplates"]}
    assert (write.verb, sizes) == (Verb.MERGE, {"decode": 1, "prefill": 3})


def test_the_workload_of_an_earlier_revision_is_deleted(rollout: Rollout) -> None:
    """When its last LeaderWorkerSet is gone, and never before all LeaderWorkerSets have been read."""
    for name in ("pd-1-decode", "pd-1-prefill"):
        rollout.put(name)
    rollout.create()
    for name in ("pd-2-decode", "pd-2-prefill"):
        rollout.put(name, 0)
    assert rollout.create().metadata.name == "disaggregatedset.pd.2"
    rollout.put("pd-1-decode", 0)
    rollout.put("pd-1-prefill", 0)
    assert [write.verb for write in rollout.writes()] == [Verb.MERGE]
    rollout.delete("pd-1-decode")
    assert rollout.writes() == ()
    rollout.delete("pd-1-prefill")
    assert rollout.writes() == ()
    rollout.queue.added.clear()
    rollout.view.owners.take("LeaderWorkerSet", Synced())
    assert rollout.queue.added == [KEY]
    (write,) = rollout.writes()
    assert (write.verb, write.resource, write.target.name) == (
        Verb.DELETE,
        KINDS[CRD][Workload],
        "disaggregatedset.pd.1",
    )


def test_workloads_of_others_are_not_deleted(rollout: Rollout) -> None:
    """Nor one that is being deleted already, or one of another namespace."""
    for name in ("pd-1-decode", "pd-1-prefill"):
        rollout.put(name)
    made = rollout.create()
    rollout.view.owners.take("LeaderWorkerSet", Synced())
    for name in ("pd-1-decode", "pd-1-prefill"):
        rollout.delete(name)
    (write,) = rollout.writes()
    assert write.verb is Verb.DELETE
    meta, changes = made.metadata, {"resource_version": "2"}
    for other in (
        replace(meta, deletion_timestamp="2026-01-01T00:00:00Z", **changes),
        replace(meta, owner_references=(), **changes),
    ):
        rollout.view.remove(CRD, made)
        rollout.view.put(CRD, replace(made, metadata=other))
        assert rollout.writes() == ()
    rollout.view.remove(CRD, made)
    rollout.view.put(CRD, replace(made, metadata=replace(meta, namespace="other")))
    assert rollout.writes() == ()
