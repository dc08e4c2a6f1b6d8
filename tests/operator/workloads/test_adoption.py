"""The Workload that an owner, such as a Job, gets."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.integrations import job, jobset
from cpg_api.integrations.policy import MIN_COUNT
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import (
    API_VERSION,
    DERIVED_FROM,
    EVENT_NOT_ADOPTED,
    EVENT_TREE_REMOVED,
    EVENT_TREE_REPLACED,
    EXPECTED_PODS,
    INSTANTIATE,
    REPLICAS,
    SCHEDULER_NAME,
    TEMPLATE_HASH,
)
from cpg_api.scheduling.podgroup import PodGroup
from cpg_api.scheduling.workload import Workload
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_client.resources import Resource
from cpg_client.stores import Added, Deleted, Modified, Synced
from cpg_operator.testing.fixtures import RecordingQueue
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.workloads.adoption import adopt
from cpg_operator.workloads.plan import desired_groups
from cpg_operator.writes import TreeKey, Verb, Write

JOBS = Resource("batch", "v1", "jobs", "Job")
JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
KEY = GroupKey("Job", "default", "train")
LATER = "2026-01-01T00:00:00Z"


class Owners:
    """A view with Jobs."""

    def __init__(self, flavour: str = CRD) -> None:
        """Start with the kind served."""
        self.queue = RecordingQueue()
        self.view = ClusterView({flavour: KINDS[flavour]}, self.queue)
        self.view.owners.add_kind(job.KIND, JOBS)
        self._flavour = flavour
        self._job: Any = None

    def put(
        self, *, size: int = 2, uid: str = "u", scheduler: str = SCHEDULER_NAME, suspend: bool = False, **metadata: Any
    ) -> None:
        """Put the Job into the view."""
        template = {"spec": {"schedulerName": scheduler}}
        spec = {"parallelism": size, "completionMode": "Indexed", "template": template, "suspend": suspend}
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
        found = created(write)
        self.view.put(self._flavour, found)
        return found

    def change_workload(self, **metadata: Any) -> None:
        """Change the metadata of the Workload of the Job."""
        (found,) = self.view.workloads(self._flavour).values()
        version = str(int(found.metadata.resource_version) + 1)
        changed = replace(found.metadata, resource_version=version, **metadata)
        self.view.put(self._flavour, replace(found, metadata=changed))

    def remove_workload(self) -> None:
        """Remove the Workload of the Job."""
        (found,) = self.view.workloads(self._flavour).values()
        self.view.remove(self._flavour, found)


def created(write: Write) -> Workload:
    """Return the Workload that a write makes."""
    found = msgspec.convert(write.body, Workload)
    return replace(found, metadata=replace(found.metadata, uid="w", resource_version="1"))


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
    annotations = write.body["metadata"]["annotations"]
    assert annotations.pop(TEMPLATE_HASH)
    assert annotations == {INSTANTIATE: "true", DERIVED_FROM: "job/train"}
    (reference,) = write.body["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["apiVersion"], reference["uid"]) == ("Job", "batch/v1", "u")
    (group,) = desired_groups(owners.workload(), api_version=API_VERSION, native=False)
    assert (group.metadata.name, group.minimum) == ("job.train.pods", 2)
    assert group.metadata.annotations == {DERIVED_FROM: "job/train"}
    assert isinstance(group, PodGroup)
    assert owners.writes() == ()


def test_a_native_workload_where_ours_are_not_served() -> None:
    """The flavour is that of the cluster."""
    native = Owners(NATIVE)
    native.put()
    assert native.queue.added == [TreeKey(NATIVE, KEY)]
    (write,) = native.writes()
    assert write.body["apiVersion"] == KINDS[NATIVE][Workload].api_version


def test_a_native_workload_has_its_replicas_in_an_annotation() -> None:
    """They are changed there, and the minimums in the templates."""
    view = ClusterView({NATIVE: KINDS[NATIVE]}, RecordingQueue())
    view.owners.add_kind(jobset.KIND, JOBSETS)
    key = TreeKey(NATIVE, GroupKey("JobSet", "default", "train"))

    def writes(replicas: int) -> tuple[Write, ...]:
        template = {"spec": {"template": {"spec": {"schedulerName": SCHEDULER_NAME}}}}
        spec = {"replicatedJobs": [{"name": "workers", "replicas": replicas, "template": template}]}
        plain = {"metadata": {"name": "train", "namespace": "default", "uid": "u"}, "spec": spec}
        view.owners.take("JobSet", Added("k", msgspec.convert(plain, jobset.JobSet)))
        return adopt(view, key, frozenset({SCHEDULER_NAME})).writes

    (create,) = writes(2)
    assert create.body["metadata"]["annotations"][REPLICAS] == "workers=2"
    view.put(NATIVE, created(create))
    assert writes(2) == ()
    (resize,) = writes(3)
    assert (resize.verb, resize.body["metadata"]) == (Verb.MERGE, {"annotations": {REPLICAS: "workers=3"}})
    (root,) = resize.body["spec"]["compositePodGroupTemplates"]
    assert root["compositePodGroupTemplates"][0]["schedulingPolicy"] == {"gang": {"minGroupCount": 3}}


def test_a_change_of_size_resizes_the_workload(owners: Owners) -> None:
    """Only then: another change of the owner writes nothing."""
    owners.workload()
    owners.put(labels={"a": "b"})
    assert owners.writes() == ()
    owners.put(size=5)
    (write,) = owners.writes()
    (template,) = write.body["spec"]["podGroupTemplates"]
    assert (write.verb, template["schedulingPolicy"]) == (Verb.MERGE, {"gang": {"minCount": 5}})


def test_another_shape_gets_another_workload(owners: Owners) -> None:
    """The API fixes templates. The event says so, once for each Workload."""
    owners.workload()
    owners.put(annotations={"scheduling.cpg.dev/required-topology": "rack"})
    event, delete = owners.writes()
    assert (event.verb, event.resource, event.target.name) == (Verb.EVENT, JOBS, "train")
    assert event.event is not None
    assert (event.event.reason, event.event.warning) == (EVENT_TREE_REPLACED, False)
    note = "its tree has changed in more than sizes: Workload job.train and its groups are made anew"
    assert event.event.note == note
    assert (delete.verb, delete.target.uid) == (Verb.DELETE, "w")
    owners.change_workload(deletion_timestamp=LATER)
    assert owners.writes() == ()
    owners.remove_workload()
    (create,) = owners.writes()
    (template,) = create.body["spec"]["podGroupTemplates"]
    assert template["schedulingConstraints"] == {"topology": [{"key": "rack"}]}


def test_a_field_that_the_api_server_drops_is_reported(owners: Owners) -> None:
    """Another Workload would not have it either."""
    owners.put(annotations={"scheduling.cpg.dev/required-topology": "rack"})
    made = owners.workload()
    (template,) = made.spec.pod_group_templates or ()
    spec = replace(made.spec, pod_group_templates=(replace(template, scheduling_constraints=None),))
    owners.view.put(CRD, replace(made, spec=spec, metadata=replace(made.metadata, resource_version="2")))
    (write,) = owners.writes()
    assert write.event is not None
    assert (write.event.reason, write.event.warning) == (EVENT_NOT_ADOPTED, True)
    assert "has not kept all fields of Workload job.train" in write.event.note


def test_a_foreign_workload_of_that_name_is_left_alone(owners: Owners) -> None:
    """That of an earlier owner is deleted, so that its successor does not wait for Kubernetes to do it."""
    owners.workload()
    owners.put(uid="other")
    (write,) = owners.writes()
    assert (write.verb, write.target.uid) == (Verb.DELETE, "w")
    owners.change_workload(annotations={})
    (write,) = owners.writes()
    assert write.event is not None
    assert write.event.note == "Workload job.train exists and was not made for it; it is left unchanged"


def test_an_orphan_is_removed_once_its_owner_is_known_to_be_gone(owners: Owners) -> None:
    """Its owner was deleted without its dependents; until the kind has been listed, an owner may only be unknown."""
    owners.workload()
    owners.change_workload(owner_references=())
    owners.delete()
    assert owners.writes() == ()
    owners.queue.added.clear()
    owners.view.owners.take("Job", Synced())
    assert owners.queue.added == [TreeKey(CRD, KEY)]
    (write,) = owners.writes()
    assert (write.verb, write.target.uid) == (Verb.DELETE, "w")
    owners.change_workload(annotations={})
    assert owners.writes() == ()


def test_an_orphan_is_removed_for_a_new_owner_too(owners: Owners) -> None:
    """A Workload cannot get another owner, because its groups would follow the old templates meanwhile."""
    owners.workload()
    owners.change_workload(owner_references=())
    owners.put(uid="other")
    (write,) = owners.writes()
    assert (write.verb, write.target.uid) == (Verb.DELETE, "w")


def test_an_owner_without_pods_for_us_loses_its_tree(owners: Owners) -> None:
    """Not one that is suspended or finished, nor one whose Workload is another's."""
    owners.workload()
    owners.put(suspend=True)
    assert owners.writes() == ()
    owners.put(scheduler="other")
    event, delete = owners.writes()
    assert event.event is not None
    assert (event.event.reason, event.event.warning) == (EVENT_TREE_REMOVED, False)
    assert (delete.verb, delete.target.uid) == (Verb.DELETE, "w")
    owners.put(scheduler="other", uid="other")
    assert owners.writes() == ()


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
    owners.view.owners.on_workload(replace(made, metadata=replace(made.metadata, annotations={})), exists=True)
    assert owners.queue.added == []


def test_without_groups_nothing_is_adopted() -> None:
    """There is no flavour to make a Workload of."""
    view = ClusterView({}, RecordingQueue())
    view.owners.add_kind(job.KIND, JOBS)
    view.owners.take("Job", Added("k", job.Job()))


def test_the_workload_says_which_pods_are_expected() -> None:
    """A JobSet with exclusive topology begins with leaders; the number of the others can change."""
    view = ClusterView({CRD: KINDS[CRD]}, RecordingQueue())
    view.owners.add_kind(jobset.KIND, JOBSETS)
    key = TreeKey(CRD, GroupKey("JobSet", "default", "train"))

    def writes(parallelism: int, old: jobset.JobSet | None = None) -> tuple[jobset.JobSet, tuple[Write, ...]]:
        template = {"spec": {"parallelism": parallelism, "template": {"spec": {"schedulerName": SCHEDULER_NAME}}}}
        annotations = {jobset.EXCLUSIVE_TOPOLOGY: "rack"}
        metadata = {"name": "train", "namespace": "default", "uid": "u", "annotations": annotations}
        plain = {"metadata": metadata, "spec": {"replicatedJobs": [{"name": "w", "template": template}]}}
        owner = msgspec.convert(plain, jobset.JobSet)
        view.owners.take("JobSet", Added("k", owner) if old is None else Modified("k", old, owner))
        return owner, adopt(view, key, frozenset({SCHEDULER_NAME})).writes

    owner, (write,) = writes(3)
    assert write.body["metadata"]["annotations"][EXPECTED_PODS] == '{"w":[{"count":3}]}'
    view.put(CRD, msgspec.convert(write.body, Workload))
    assert writes(3, owner)[1] == ()
    (update,) = writes(4, owner)[1]
    assert update.verb is Verb.MERGE
    assert update.body["metadata"]["annotations"] == {EXPECTED_PODS: '{"w":[{"count":4}]}'}
