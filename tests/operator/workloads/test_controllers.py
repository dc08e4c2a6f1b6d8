"""Owners that another object controls: a TrainJob's annotations apply to its JobSet."""

from typing import Any

import msgspec
import pytest

from cpg_api.integrations import jobset, trainjob
from cpg_api.integrations.policy import MIN_COUNT, REQUIRED
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_client.flavours import CRD, KINDS
from cpg_client.resources import Resource
from cpg_client.stores import Added, Deleted, Modified
from cpg_operator.testing.fixtures import RecordingQueue
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.workloads.adoption import adopt
from cpg_operator.writes import TreeKey, Write

JOBSETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
TRAINJOBS = Resource("trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob")
KEY = TreeKey(CRD, GroupKey("JobSet", "default", "fit"))
ABOVE = TreeKey(CRD, GroupKey("TrainJob", "default", "fit"))
TEMPLATE = {"spec": {"template": {"spec": {"schedulerName": SCHEDULER_NAME}}}}


class Training:
    """A view with a TrainJob and its JobSet."""

    def __init__(self) -> None:
        """Start with both kinds served."""
        self.queue = RecordingQueue()
        self.view = ClusterView({CRD: KINDS[CRD]}, self.queue)
        self.view.owners.add_kind(jobset.KIND, JOBSETS)
        self.view.owners.add_kind(trainjob.KIND, TRAINJOBS)

    def put_trainjob(self, uid: str = "u", **annotations: str) -> None:
        """Put the TrainJob into the view; annotations are named without their prefix."""
        found = msgspec.convert({"metadata": metadata(uid, annotations)}, trainjob.TrainJob)
        old = self.view.owners.get(ABOVE.anchor)
        self.view.owners.take("TrainJob", Added("k", found) if old is None else Modified("k", old, found))

    def put_jobset(self, controller: str = TRAINJOBS.api_version, **annotations: str) -> None:
        """Put the JobSet into the view."""
        owner = {"apiVersion": controller, "kind": "TrainJob", "name": "fit", "uid": "u", "controller": True}
        meta = metadata("j", annotations) | {"ownerReferences": [owner]}
        spec = {"replicatedJobs": [{"name": "node", "template": TEMPLATE}]}
        found = msgspec.convert({"metadata": meta, "spec": spec}, jobset.JobSet)
        old = self.view.owners.get(KEY.anchor)
        self.view.owners.take("JobSet", Added("k", found) if old is None else Modified("k", old, found))

    def writes(self, key: TreeKey = KEY) -> tuple[Write, ...]:
        """Return the writes for the JobSet."""
        return adopt(self.view, key, frozenset({SCHEDULER_NAME})).writes

    def root(self) -> dict[str, Any]:
        """Return the root template of the Workload that is to be made."""
        (write,) = self.writes()
        (found,) = write.body["spec"]["compositePodGroupTemplates"]
        return dict(found)


def metadata(uid: str, annotations: dict[str, str]) -> dict[str, Any]:
    """Return the metadata of either object."""
    given = {f"scheduling.cpg.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {"name": "fit", "namespace": "default", "uid": uid, "annotations": given}


@pytest.fixture
def training() -> Training:
    """Return a view without objects."""
    return Training()


def test_annotations_are_read_from_either(training: Training) -> None:
    """Those of the JobSet come first."""
    training.put_trainjob(required_topology="block", min_count="3")
    training.put_jobset(min_count="2")
    root = training.root()
    assert root["schedulingConstraints"] == {"topology": [{"key": "block"}]}
    ((leaf,),) = (job["podGroupTemplates"] for job in root["compositePodGroupTemplates"])
    assert leaf["schedulingPolicy"] == {"gang": {"minCount": 2}}
    assert training.writes(ABOVE) == ()
    assert (REQUIRED, MIN_COUNT) == ("scheduling.cpg.dev/required-topology", "scheduling.cpg.dev/min-count")


def test_a_jobset_waits_until_its_trainjob_is_known(training: Training) -> None:
    """Otherwise its tree would be made without these annotations. One of an earlier TrainJob is to be deleted."""
    training.put_jobset()
    assert training.writes() == ()
    training.put_trainjob(uid="earlier")
    assert training.writes() == ()
    training.queue.added.clear()
    training.put_trainjob()
    assert training.queue.added == [ABOVE, KEY]
    assert len(training.writes()) == 1


def test_without_trainjobs_nothing_is_waited_for(training: Training) -> None:
    """Nor for objects of that kind in another API group."""
    training.put_jobset("example.com/v1")
    assert len(training.writes()) == 1
    training.put_jobset()
    training.view.owners.forget_kind("TrainJob")
    assert len(training.writes()) == 1


def test_a_trainjob_concerns_its_jobset_only_by_its_annotations(training: Training) -> None:
    """Its status changes often."""
    training.put_trainjob()
    training.put_jobset()
    training.queue.added.clear()
    training.put_trainjob()
    assert training.queue.added == [ABOVE]
    training.put_trainjob(min_count="1")
    assert training.queue.added == [ABOVE, ABOVE, KEY]
    training.queue.added.clear()
    training.put_jobset("example.com/v1")
    training.view.owners.take("TrainJob", Deleted("k", training.view.owners.get(ABOVE.anchor)))
    assert training.queue.added == [KEY, ABOVE]


def test_bad_annotations_are_reported_on_both(training: Training) -> None:
    """The user of a TrainJob reads its events."""
    training.put_trainjob(min_count="many")
    training.put_jobset()
    (event,) = training.writes(ABOVE)
    assert (event.resource, event.target.uid) == (TRAINJOBS, "u")
    assert [write.target.name for write in training.writes()] == ["fit", "jobset.fit"]


def test_references_in_a_cycle_end(training: Training) -> None:
    """A user can write any."""
    training.put_jobset()
    owner = {"apiVersion": JOBSETS.api_version, "kind": "JobSet", "name": "fit", "uid": "j", "controller": True}
    plain = {"metadata": metadata("u", {}) | {"ownerReferences": [owner]}}
    training.view.owners.take("TrainJob", Added("k", msgspec.convert(plain, trainjob.TrainJob)))
    assert len(training.writes()) == 1
