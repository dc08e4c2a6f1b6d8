"""What the tree of a Job depends on beside the Job itself."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from cpg_api.core.pod import Pod, PodStatus
from cpg_api.integrations import job, jobset
from cpg_api.meta import ObjectMeta, OwnerReference
from cpg_api.scheduling.forest import GroupKey
from cpg_api.scheduling.names import SCHEDULER_NAME
from cpg_api.scheduling.workload import Workload, WorkloadSpec
from cpg_client.flavours import CRD, KINDS, NATIVE
from cpg_client.resources import Resource
from cpg_client.stores import Added
from cpg_operator.testing.fixtures import RecordingQueue
from cpg_operator.view.cluster_view import ClusterView
from cpg_operator.workloads.adoption import adopt
from cpg_operator.workloads.jobs import observe_owner
from cpg_operator.writes import TreeKey, Verb, Write

KEY = TreeKey(CRD, GroupKey("Job", "default", "train"))


@pytest.fixture
def view() -> ClusterView:
    """Return a view of both flavours that serves Jobs."""
    found = ClusterView({flavour: KINDS[flavour] for flavour in (CRD, NATIVE)}, RecordingQueue())
    found.owners.add_kind(job.KIND, Resource("batch", "v1", "jobs", "Job"))
    return found


def put_job(view: ClusterView, spec: dict[str, Any], **status: object) -> None:
    """Put the Job into the view."""
    template = {"spec": {"schedulerName": SCHEDULER_NAME}}
    whole = {"completionMode": "Indexed", "template": template, **spec}
    plain = {"metadata": {"name": "train", "namespace": "default", "uid": "u"}, "spec": whole, "status": status}
    view.owners.take("Job", Added("k", msgspec.convert(plain, job.Job)))


def writes(view: ClusterView) -> tuple[Write, ...]:
    """Return the writes for the Job."""
    return adopt(view, KEY, frozenset({SCHEDULER_NAME})).writes


def create(view: ClusterView) -> None:
    """Create the Workload of the Job, as the API server would."""
    (write,) = writes(view)
    assert write.verb is Verb.CREATE
    found = msgspec.convert(write.body, Workload)
    view.put(CRD, replace(found, metadata=replace(found.metadata, uid="w", resource_version="1")))


def minimum(write: Write) -> int:
    """Return the minimum of the one group of a Workload."""
    (template,) = write.body["spec"]["podGroupTemplates"]
    found: int = template["schedulingPolicy"]["gang"]["minCount"]
    return found


def native_workload(name: str, uid: str) -> Workload:
    """Return the Workload that Kubernetes makes of a Job."""
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="train", uid=uid, controller=True)
    meta = ObjectMeta(name=name, namespace="default", uid="n", resource_version="1", owner_references=(owner,))
    return Workload(metadata=meta, spec=WorkloadSpec())


def test_finished_pods_that_are_gone_do_not_count(view: ClusterView) -> None:
    """Those that exist do, so nothing is written while a Job runs."""
    put_job(view, {"parallelism": 4, "completions": 4})
    create(view)
    done = Pod(ObjectMeta(name="p", namespace="default", uid="p"), status=PodStatus(phase="Succeeded"))
    view.on_pod(Added("p", replace(done, derived_group="job.train.pods")))
    put_job(view, {"parallelism": 4, "completions": 4}, succeeded=1)
    assert writes(view) == ()
    put_job(view, {"parallelism": 4, "completions": 4}, succeeded=2)
    (write,) = writes(view)
    assert (write.verb, minimum(write)) == (Verb.MERGE, 3)


def test_a_suspended_job_is_kept_up_to_date(view: ClusterView) -> None:
    """It gets no Workload, but one that it has is right when it resumes."""
    put_job(view, {"parallelism": 2, "suspend": True})
    assert writes(view) == ()
    put_job(view, {"parallelism": 2})
    create(view)
    put_job(view, {"parallelism": 5, "suspend": True})
    (write,) = writes(view)
    assert (write.verb, minimum(write)) == (Verb.MERGE, 5)


def test_a_job_with_a_workload_of_kubernetes_gets_none(view: ClusterView) -> None:
    """Its pods name the group of that one. Another Job's does not matter, nor one that is gone."""
    put_job(view, {"parallelism": 2})
    view.put(NATIVE, native_workload("other-1", "other"))
    assert writes(view) != ()
    view.put(NATIVE, native_workload("train-1", "u"))
    assert writes(view) == ()
    view.remove(NATIVE, native_workload("train-1", "u"))
    assert writes(view) != ()


def test_other_owners_are_taken_as_they_are(view: ClusterView) -> None:
    """Also where there is none."""
    assert observe_owner(view, KEY, None) is None
    other = jobset.JobSet()
    assert observe_owner(view, KEY, other) is other
