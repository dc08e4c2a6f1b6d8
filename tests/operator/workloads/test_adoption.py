"""The Workload that an owner, such as a Job, gets."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.integrations import job, jobset
from cpg_api.integrations.policy import MIN_COUNT
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import API_VERSION, DERIVED_FROM, EVENT_NOT_ADOPTED, INSTANTIATE, SCHEDULER_NAME
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_client.resources import Resource
from cpg_client.stores import Added, Deleted, Modified, Synced
from cpg_operator.testing.fixtures import RecordingQueue
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.workloads.adoption import NATIVE_WITHOUT_REPLICAS, adopt
from cpg_operator.workloads.plan import desired_groups
from cpg_operator.writes import TreeKey, Verb, Write

JOBS = Resource("batch", "v1", "jobs", "Job")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
KEY = GroupKey("Job", "default", "train")


class Owners:
    """A view with Jobs."""

    def __init__(self, flavour: str = CRD) -> None:
        """Start with the kind served."""
        self.queue = RecordingQueue()
        self.view = ClusterView({flavour: KINDS[flavour]}, self.queue)
        self.view.owners.add_kind(job.KIND, JOBS)
        self._flavour = flavour
        self._job: Any = None

    def put(self, *, size: int = 2, uid: str = "u", **metadata: Any) -> None:
        """Put the Job into the view."""
        template = {"spec": {"schedulerName": SCHEDULER_NAME}}
        spec = {"parallelism": size, "completionMode": "Indexed", "template": template}
        plain = {"metadata": {"name": "train", "namespace": "default", "uid": uid, **metadata}, "spec": spec}
        old, self._job = self._job, msgspec.convert(plain, job.Job)
        change = Added("k", self._job) if old is None else Modified("k", old, self._job)
        self.view.owners.take("Job", change)

    def delete(self) -> None:
        """Remove the Job."""
        self.view.owners.take("Job", Deleted("k", self._job))

    def writes(self) -> tuple[Write, ...]:
        """Return the writes for the Job."""
        return adopt(self.view, TreeKey(self._flavour, KEY), frozenset({SCHEDULER_NAME})).writes

    def workload(self) -> Workload:
        """Create the Workload of the Job in the view, as the API server would; return it."""
        (write,) = self.writes()
        found = msgspec.convert(write.body, Workload)
        found = replace(found, metadata=replace(found.metadata, uid="w", resource_version="1"))
        self.view.put(self._flavour, found)
        return found


@pytest.fixture
def owners() -> Owners:
    """Return a view with a Job."""
    found = Owners()
    found.put()
    return found


def test_an_owner_gets_a_workload(owners: Owners) -> None:
    """It belongs to the owner, asks for its groups, and these have the names that pods derive."""
    (write,) = owners.writes()
    assert (write.verb, write.resource, write.target.name) == (Verb.CREATE, KINDS[CRD][Workload], "job.train")
    assert write.body["apiVersion"] == API_VERSION
    assert write.body["metadata"]["annotations"] == {INSTANTIATE: "true", DERIVED_FROM: "Job/train"}
    (reference,) = write.body["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["apiVersion"], reference["uid"]) == ("Job", "batch/v1", "u")
    (group,) = desired_groups(owners.workload(), api_version=API_VERSION, native=False)
    assert (group.metadata.name, group.minimum) == ("job.train.pods", 2)
    assert isinstance(group, PodGroup)
    assert owners.writes() == ()


def test_a_native_workload_where_ours_are_not_served() -> None:
    """The flavour is that of the cluster."""
    native = Owners(NATIVE)
    native.put()
    assert native.queue.added == [TreeKey(NATIVE, KEY)]
    (write,) = native.writes()
    assert write.body["apiVersion"] == KINDS[NATIVE][Workload].api_version


def test_a_native_workload_has_no_replicas() -> None:
    """The API server would drop them, so an owner whose tree needs them gets an event in place of a wrong tree."""
    view = ClusterView({NATIVE: KINDS[NATIVE]}, RecordingQueue())
    view.owners.add_kind(jobset.KIND, JOBSETS)
    template = {"spec": {"template": {"spec": {"schedulerName": SCHEDULER_NAME}}}}
    spec = {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": template}]}
    plain = {"metadata": {"name": "train", "namespace": "default", "uid": "u"}, "spec": spec}
    view.owners.take("JobSet", Added("k", msgspec.convert(plain, jobset.JobSet)))
    key = TreeKey(NATIVE, GroupKey("JobSet", "default", "train"))
    (write,) = adopt(view, key, frozenset({SCHEDULER_NAME})).writes
    assert (write.verb, write.target.name) == (Verb.EVENT, "train")
    assert write.event is not None
    assert (write.event.reason, write.event.note) == (EVENT_NOT_ADOPTED, NATIVE_WITHOUT_REPLICAS)


def test_a_change_of_size_resizes_the_workload(owners: Owners) -> None:
    """Only then: another change of the owner writes nothing."""
    owners.workload()
    owners.put(labels={"a": "b"})
    assert owners.writes() == ()
    owners.put(size=5)
    (write,) = owners.writes()
    (template,) = write.body["spec"]["podGroupTemplates"]
    assert (write.verb, template["schedulingPolicy"]) == (Verb.MERGE, {"gang": {"minCount": 5}})


def test_what_cannot_change_is_reported(owners: Owners) -> None:
    """By an event on the owner, with what to do."""
    owners.workload()
    owners.put(annotations={"scheduling.cpg.dev/required-topology": "rack"})
    (write,) = owners.writes()
    assert (write.verb, write.resource, write.target.name) == (Verb.EVENT, JOBS, "train")
    assert write.event is not None
    assert write.event.reason == EVENT_NOT_ADOPTED
    assert write.event.note == "only the sizes of its tree can change; delete Workload job.train to have it made anew"


def test_a_foreign_workload_of_that_name_is_left_alone(owners: Owners) -> None:
    """Also the one of an earlier owner, until Kubernetes has collected it."""
    owners.workload()
    owners.put(uid="other")
    (write,) = owners.writes()
    assert write.event is not None
    assert write.event.note == "Workload job.train exists and was not made for it; it is left unchanged"


def test_bad_annotations_are_reported(owners: Owners) -> None:
    """Beside the Workload without them."""
    owners.put(annotations={MIN_COUNT: "many"})
    event, create = owners.writes()
    assert event.event is not None
    assert "'many' is no number from 1" in event.event.note
    assert create.verb is Verb.CREATE


def test_owners_that_are_gone_get_nothing(owners: Owners) -> None:
    """Kubernetes collects their Workloads."""
    owners.put(deletionTimestamp="2026-01-01T00:00:00Z")
    assert owners.writes() == ()
    owners.delete()
    assert owners.writes() == ()
    owners.put()
    owners.view.owners.forget_kind("Job")
    assert owners.writes() == ()


def test_each_change_of_an_owner_or_its_workload_is_looked_at(owners: Owners) -> None:
    """A Workload that a user deletes is made again; one without an owner concerns none."""
    made = owners.workload()
    owners.queue.added.clear()
    owners.view.remove(CRD, made)
    assert TreeKey(CRD, KEY) in owners.queue.added
    owners.queue.added.clear()
    owners.view.owners.take("Job", Synced())
    owners.view.owners.on_workload(replace(made, metadata=replace(made.metadata, annotations={})))
    assert owners.queue.added == []


def test_without_groups_nothing_is_adopted() -> None:
    """There is no flavour to make a Workload of."""
    view = ClusterView({}, RecordingQueue())
    view.owners.add_kind(job.KIND, JOBS)
    view.owners.take("Job", Added("k", job.Job()))
