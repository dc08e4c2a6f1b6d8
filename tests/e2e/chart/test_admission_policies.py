"""The policies that fill schedulerName and groups, evaluated by a real API server and compared with our own rules."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from cpg_api.core.pod import Pod
from cpg_api.integrations.registry import Integrations
from cpg_api.scheduling.membership import DERIVED_PATH, membership
from cpg_api.scheduling.names import ADOPT, GANG, POD_GROUP_LABEL, SCHEDULER_NAME
from cpg_client.connection import APPLY_YAML, Connection
from cpg_client.errors import ApiError
from cpg_lab import building, workloads
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

pytestmark = pytest.mark.e2e

CHART = Path(__file__).parents[3] / "charts" / "kube-cpg"
SAMPLES = yaml.safe_load(Path(__file__).with_name("workload-pods.yaml").read_text("utf-8"))
ON = ["jobset", "leaderworkerset", "raycluster", "job"]
VALUES = {"api": "native", "integrations": ON, "admissionPolicy": {"enabled": True, "force": True}}
LABEL = "scheduling.cpg.dev/enabled"
DEFAULT = "default-scheduler"
DISAGGREGATED = "disaggregatedset.x-k8s.io/name"
PODS = "/api/v1/namespaces/{}/pods"
MAX_SECONDS_TO_TAKE_EFFECT = 120.0
Plain = dict[str, Any]

RULES_OF_POLICY = Integrations([SCHEDULER_NAME], ON)
CONTAINERS = [{"name": "main", "image": "none"}]
TEMPLATE: Plain = {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}


@pytest.fixture(scope="module")
def cluster(install: "Installer") -> Iterator[Cluster]:
    """Run a cluster with native groups, the CRDs of the controllers, the policies and two namespaces, one labelled."""
    with Cluster(ClusterSpec(gates="native")) as running:
        controllers = workloads.of_names(["jobset", "lws", "ray"])
        workloads.install_crds(controllers, running.access, kubernetes="1.37")
        install(running, VALUES)
        for name in ("labelled", "other"):
            running.kubectl("create", "namespace", name)
        for name in ("labelled", "kube-cpg", "kube-system"):
            running.kubectl("label", "namespace", name, f"{LABEL}=true")
        asyncio.run(wait_for_policies(running.kubeconfig))
        yield running


async def wait_for_policies(kubeconfig: Path) -> None:
    """Wait until the API server serves all kinds and evaluates all policies."""
    async with Connection.from_kubeconfig(kubeconfig) as connection:
        await wait_until(lambda: are_in_effect(connection))


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Connection]:
    """Return a connection of an administrator."""
    async with Connection.from_kubeconfig(cluster.kubeconfig) as connection:
        yield connection


async def wait_until(check: Callable[[], Awaitable[bool]]) -> None:
    """Wait until the API server has taken notice of a change."""
    async with asyncio.timeout(MAX_SECONDS_TO_TAKE_EFFECT):
        while not await check():  # noqa: ASYNC110 - a server's state
            await asyncio.sleep(0.1)


async def are_in_effect(connection: Connection) -> bool:
    """Return whether the policies fill what they should.

    For some seconds the API server may not serve a new kind, and it answers 503 as long as policies lack its schema.
    """
    try:
        plain = await created(connection, PODS.format("labelled"), pod_of({}))
        owners = [
            names_in(await created(connection, f"{path}/namespaces/labelled/{plural}", owner))
            for path, plural, owner in OWNERS.values()
        ]
    except ApiError as error:
        if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE}:
            raise
        return False
    return plain["spec"]["schedulerName"] == SCHEDULER_NAME and all(SCHEDULER_NAME in names for names in owners)


async def created(connection: Connection, path: str, thing: Plain) -> Plain:
    """Create an object in a dry run, and return it."""
    found: Plain = msgspec.json.decode(await connection.post(path, thing, params={"dryRun": "All"}))
    return found


def pod_of(case: Mapping[str, Any], scheduler: str | None = None) -> Plain:
    """Return a pod with the labels, annotations and controller of a case."""
    owner = case.get("owner")
    owners: list[Plain] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"}]
    if owner is not None:
        owners.append({**owner, "uid": "owner", "controller": True})
    meta = {
        "generateName": "pod-",
        "labels": dict(case.get("labels", {})),
        "annotations": dict(case.get("annotations", {})),
        "ownerReferences": owners,
    }
    spec: Plain = {"containers": CONTAINERS}
    if scheduler is not None:
        spec["schedulerName"] = scheduler
    if "native" in case:
        spec["schedulingGroup"] = {"podGroupName": case["native"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def variants(case: Plain) -> Iterator[Plain]:
    """Yield a pod as it is, with each of its labels and its controller changed or removed, and with our own marks."""
    yield case
    labels = case["labels"]
    for key in labels:
        yield {**case, "labels": {one: value for one, value in labels.items() if one != key}}
        for value in ("a.b", "Big", "other", ""):
            yield {**case, "labels": labels | {key: value}}
    for change in ({"name": "other"}, {"kind": "ReplicaSet"}, {"apiVersion": "example.com/v1"}):
        yield {**case, "owner": case["owner"] | change}
    yield {**case, "owner": None}
    for marks in ({ADOPT: "false"}, {ADOPT: "true"}, {GANG: "true"}, {POD_GROUP_LABEL: "mine"}):
        yield {**case, "labels": labels | marks}
        yield {**case, "annotations": case.get("annotations", {}) | marks}
    yield {**case, "labels": labels | {ADOPT: "true"}, "annotations": {ADOPT: "false"}}
    yield {**case, "annotations": {}}


def group_by_our_rules(plain: Plain) -> str | None:
    """Return the name that our rules derive for a pod that names no group."""
    found = membership(RULES_OF_POLICY.with_group(msgspec.convert(plain, Pod)))
    return found.group if found.found_at == DERIVED_PATH else None


@pytest.mark.parametrize("case", SAMPLES, ids=lambda case: f"{case['sample']}-{case['owner']['name']}")
async def test_the_group_of_a_pod_is_the_one_that_our_rules_derive(admin: Connection, case: Plain) -> None:
    """For the pods of every controller, and for pods that differ from them in one label, owner or mark."""
    for variant in variants(case):
        sent = pod_of(variant, SCHEDULER_NAME)
        found = await created(admin, PODS.format("labelled"), sent)
        wanted = variant.get("native") or group_by_our_rules(sent)
        if wanted != variant.get("native") and DISAGGREGATED in sent["metadata"]["labels"]:
            wanted = None  # its name depends on another integration; the scheduler derives it
        assert found["spec"].get("schedulingGroup", {}).get("podGroupName") == wanted, variant
        assert found["spec"]["schedulerName"] == SCHEDULER_NAME


@pytest.mark.parametrize("case", SAMPLES, ids=lambda case: f"{case['sample']}-{case['owner']['name']}")
async def test_pods_of_an_owner_with_a_tree_follow_its_template(admin: Connection, case: Plain) -> None:
    """A tree is made for owners whose template is ours, so only pods that derive no group get our scheduler."""
    for variant in variants(case):
        ours = pod_of(variant, SCHEDULER_NAME)
        derived = RULES_OF_POLICY.group_of(msgspec.convert(ours, Pod))
        stays = derived is not None or "false" in marks_of(ours, ADOPT) or "true" in marks_of(ours, GANG)
        found = await created(admin, PODS.format("labelled"), pod_of(variant))
        assert found["spec"]["schedulerName"] == (DEFAULT if stays else SCHEDULER_NAME), variant


def marks_of(pod: Plain, key: str) -> set[str]:
    """Return the value of a mark; a label comes before an annotation."""
    meta = pod["metadata"]
    return {meta["labels"].get(key, meta["annotations"].get(key))}


def test_a_cluster_with_the_policies_api_needs_no_force(cluster: Cluster) -> None:
    """Helm asks the API server which kinds it serves."""
    helm = building.ensure(["helm"])["helm"]
    command = [
        str(helm),
        "--kubeconfig",
        str(cluster.kubeconfig),
        "install",
        "policies",
        str(CHART),
        "--dry-run=server",
    ]
    options = ["--set=image.repository=kube-cpg,admissionPolicy.enabled=true,crds.install=false"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)  # noqa: S603 - built in code
    assert done.returncode == 0, done.stderr
    assert "kind: MutatingAdmissionPolicyBinding" in done.stdout


async def test_other_pods_stay_as_they_are(admin: Connection) -> None:
    """Those of other namespaces, of ours, of other schedulers, and pods with a node."""
    for namespace in ("other", "kube-cpg", "kube-system"):
        found = await created(admin, PODS.format(namespace), pod_of({}))
        assert found["spec"]["schedulerName"] == DEFAULT
    assert (await created(admin, PODS.format("labelled"), pod_of({}, "another")))["spec"]["schedulerName"] == "another"
    bound = pod_of({})
    bound["spec"]["nodeName"] = "node-1"
    assert (await created(admin, PODS.format("labelled"), bound))["spec"]["schedulerName"] == DEFAULT
    jobset = {"owner": SAMPLES[0]["owner"], "labels": SAMPLES[0]["labels"]}
    assert "schedulingGroup" not in (await created(admin, PODS.format("other"), pod_of(jobset, SCHEDULER_NAME)))["spec"]


def owner_of(api_version: str, kind: str, spec: Plain) -> Plain:
    """Return an owner."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "train"}, "spec": spec}


def replicated(name: str, template: Plain) -> Plain:
    """Return a replicated job."""
    return {"name": name, "template": {"spec": {"template": template}}}


def workers(name: str, template: Plain) -> Plain:
    """Return a group of workers of a RayCluster."""
    return {"groupName": name, "replicas": 1, "minReplicas": 1, "maxReplicas": 1, "rayStartParams": {}} | {
        "template": template
    }


def of_scheduler(name: str) -> Plain:
    """Return a pod template of another scheduler."""
    return {"spec": TEMPLATE["spec"] | {"schedulerName": name}}


OUT: Plain = {"metadata": {"annotations": {ADOPT: "false"}}, "spec": TEMPLATE["spec"]}
RAY_OUT: Plain = {"metadata": {"labels": {ADOPT: "false"}}, "spec": TEMPLATE["spec"]}
OWNERS: dict[str, tuple[str, str, Plain]] = {
    "job": ("/apis/batch/v1", "jobs", owner_of("batch/v1", "Job", {"template": TEMPLATE})),
    "jobset": (
        "/apis/jobset.x-k8s.io/v1alpha2",
        "jobsets",
        owner_of(
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {
                "replicatedJobs": [
                    replicated("out", OUT),
                    replicated("driver", TEMPLATE),
                    replicated("other", of_scheduler("other")),
                    replicated("workers", TEMPLATE),
                ]
            },
        ),
    ),
    "leaderworkerset": (
        "/apis/leaderworkerset.x-k8s.io/v1",
        "leaderworkersets",
        owner_of(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": {"containers": CONTAINERS}}}},
        ),
    ),
    "raycluster": (
        "/apis/ray.io/v1",
        "rayclusters",
        owner_of(
            "ray.io/v1",
            "RayCluster",
            {
                "headGroupSpec": {"rayStartParams": {}, "template": TEMPLATE},
                "workerGroupSpecs": [workers("out", RAY_OUT), workers("cpu", TEMPLATE), workers("gpu", TEMPLATE)],
            },
        ),
    ),
}
"""An owner of each integration, with its path in the API."""

FILLED = {
    "job": [SCHEDULER_NAME],
    "jobset": ["", SCHEDULER_NAME, "other", SCHEDULER_NAME],
    "leaderworkerset": [SCHEDULER_NAME],
    "raycluster": [SCHEDULER_NAME, "", SCHEDULER_NAME, SCHEDULER_NAME],
}


def templates_in(owner: object) -> Iterator[Plain]:
    """Yield every pod spec of an owner, in order."""
    if isinstance(owner, dict):
        if "containers" in owner:
            yield owner
        else:
            for value in owner.values():
                yield from templates_in(value)
    elif isinstance(owner, list):
        for value in owner:
            yield from templates_in(value)


def names_in(owner: Plain) -> list[str]:
    """Return the schedulerName of every pod template of an owner."""
    return [spec.get("schedulerName", "") for spec in templates_in(owner["spec"])]


@pytest.mark.parametrize("kind", OWNERS)
async def test_templates_of_a_new_owner_are_filled(admin: Connection, kind: str) -> None:
    """Those without a scheduler, in labelled namespaces, unless they keep their pods out."""
    path, plural, owner = OWNERS[kind]
    assert names_in(await created(admin, f"{path}/namespaces/labelled/{plural}", owner)) == FILLED[kind]
    elsewhere = names_in(await created(admin, f"{path}/namespaces/other/{plural}", owner))
    assert SCHEDULER_NAME not in elsewhere


@pytest.mark.parametrize("kind", OWNERS)
@pytest.mark.parametrize("labelled", ["before", "after"])
async def test_an_update_keeps_what_was_filled(admin: Connection, kind: str, labelled: str) -> None:
    """It fills no template of an owner that was created before its namespace was labelled."""
    path, plural, owner = OWNERS[kind]
    space = f"{kind}-labelled-{labelled}"
    await label(admin, space, enabled=labelled == "before")
    collection = f"{path}/namespaces/{space}/{plural}"
    await wait_until(lambda: is_filled(admin, collection, owner, wanted=labelled == "before"))
    before: Plain = msgspec.json.decode(await admin.post(collection, owner))
    names = names_in(before)
    await label(admin, space, enabled=True)
    await wait_until(lambda: is_filled(admin, collection, {**owner, "metadata": {"name": "another"}}))
    again = {**owner, "metadata": before["metadata"] | {"labels": {"a": "b"}}}
    if kind == "job":  # its other fields are immutable, and the API server has set some
        again["spec"] = before["spec"]
        del again["spec"]["template"]["spec"]["schedulerName"]
    after: Plain = msgspec.json.decode(await admin.put(f"{collection}/train", again))
    assert after["metadata"]["labels"]["a"] == "b"
    assert names_in(after) == names


async def is_filled(admin: Connection, collection: str, owner: Plain, *, wanted: bool = True) -> bool:
    """Return whether a new owner is filled, or, if that is wanted, is not."""
    return (SCHEDULER_NAME in names_in(await created(admin, collection, owner))) == wanted


async def label(admin: Connection, namespace: str, *, enabled: bool) -> None:
    """Create a namespace, or change its label."""
    meta = {"name": namespace, "labels": {LABEL: "true"} if enabled else {}}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
    await admin.patch(f"/api/v1/namespaces/{namespace}", body, APPLY_YAML, params={"fieldManager": "test"})
