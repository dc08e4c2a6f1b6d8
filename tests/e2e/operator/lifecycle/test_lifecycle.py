"""Groups from their creation to their deletion, on a real API server with its garbage collector."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from cpg_api.meta import ObjectMeta
from cpg_api.scheduling.names import FINALIZER, INSTANTIATE, POD_GROUP_LABEL
from cpg_client.connection import MERGE_PATCH
from cpg_client.errors import ApiError
from cpg_client.patching import bind
from cpg_client.resources import CPG_POD_GROUPS
from cpg_lab.deployments import Deployments, run_job

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer
    from tests.e2e.operator.lifecycle.conftest import Api, OperatorProcess

    from cpg_lab.clusters import Cluster

DOCUMENT = Path(__file__).parents[4] / "docs" / "concepts" / "lifecycle.md"
HOLD = "example.com/hold"
CPG, PG = "CompositePodGroup", "PodGroup"
PARENT = "parentCompositePodGroupName"
POD = {
    "nodeName": "node-1",
    "restartPolicy": "Never",
    "terminationGracePeriodSeconds": 0,
    "containers": [{"name": "main", "image": "busybox"}],
}
LEAF = {"name": "leaf", "schedulingPolicy": {"basic": {}}}
TEMPLATES = {
    "compositePodGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}, "podGroupTemplates": [LEAF]}]
}

pytestmark = pytest.mark.e2e


async def protected(api: "Api", *kinds: str, but: frozenset[str] = frozenset()) -> bool:
    """Return whether every group has our finalizer once, but for some, which do not have it."""
    groups = [group["metadata"] for kind in kinds or (CPG, PG) for group in await api.list(kind)]
    return all(group.get("finalizers", []).count(FINALIZER) == (group["name"] not in but) for group in groups)


async def gone(api: "Api", *names: str) -> bool:
    """Return whether these groups are deleted, or without names all of them."""
    there = await api.names(CPG, PG)
    return not there & set(names) if names else not there


async def gone_leaves_first(api: "Api") -> bool:
    """Return whether all groups are deleted; none may be while a group or pod below it exists.

    What is above is listed before what is below, so that it was gone before the other was seen.
    """
    levels = [await api.list(CPG), await api.list(CPG), await api.list(PG), await api.list("Pod")]
    above, inner, leaves, pods = levels
    parents = {one["metadata"]["name"] for one in above}
    for one in (*inner, *leaves):
        assert one["spec"].get(PARENT, "") in parents | {""}, f"the parent has gone before {one['metadata']['name']}"
    groups = {one["metadata"]["name"] for one in leaves}
    for pod in pods:
        named = pod["metadata"].get("labels", {}).get(POD_GROUP_LABEL)
        assert named is None or named in groups, f"{named} has gone before its pod {pod['metadata']['name']}"
    return not any(levels)


async def running(api: "Api", count: int) -> bool:
    """Return whether there are so many pods, all of them running."""
    pods = await api.list("Pod")
    return len(pods) == count and all(pod["status"].get("phase") == "Running" for pod in pods)


async def test_finalizers_are_added_and_removed_by_the_native_rules(api: "Api", operator: "OperatorProcess") -> None:  # noqa: ARG001
    """A deleted group is released once all pods that name it have ended."""
    for name in (
        "kept",
        "empty",
        "active",
        "ended",
        "active-and-ended",
        "pod-deleted",
        "pod-succeeds",
        "pod-fails",
        "pod-pending",
    ):
        await api.group(PG, name)
    await api.group(PG, "kept-and-held", finalizers=[HOLD, FINALIZER])
    for name in ("held", "held-with-pod"):
        await api.group(PG, name, finalizers=[HOLD])
        await api.delete(PG, name)
    await api.until("all are protected", lambda: protected(api, but=frozenset({"held", "held-with-pod"})))
    for group in ("active", "active-and-ended", "held-with-pod", "pod-deleted"):
        await api.pod(f"of-{group}", group)
    for group in ("pod-succeeds", "pod-fails", "pod-pending"):
        await api.pod(f"of-{group}", group, phase="Pending")
    for group in ("ended", "active-and-ended", "missing"):
        await api.pod(f"ended-of-{group}", group, phase="Succeeded")
    await api.pod("alone", None)
    await asyncio.sleep(0.3)
    await api.delete(
        PG, "empty", "active", "ended", "active-and-ended", "pod-deleted", "pod-succeeds", "pod-fails", "pod-pending"
    )
    await api.until("groups without pods are deleted", lambda: gone(api, "empty", "ended"))
    await api.delete("Pod", "of-pod-deleted")
    await api.merge("Pod", "of-pod-succeeds", {"status": {"phase": "Succeeded"}}, "status")
    await api.merge("Pod", "of-pod-fails", {"status": {"phase": "Failed"}}, "status")
    await api.until(
        "groups are deleted after their last pod has ended",
        lambda: gone(api, "pod-deleted", "pod-succeeds", "pod-fails"),
    )
    found = {one["metadata"]["name"]: one["metadata"]["finalizers"] for one in await api.list(PG)}
    assert found.keys() == {
        "kept",
        "kept-and-held",
        "active",
        "active-and-ended",
        "held",
        "held-with-pod",
        "pod-pending",
    }
    assert (found["kept-and-held"], found["held"], found["held-with-pod"]) == ([HOLD, FINALIZER], [HOLD], [HOLD])
    for name in ("kept-and-held", "held", "held-with-pod"):
        await api.merge(PG, name, {"metadata": {"finalizers": None}})


@contextmanager
def down(operator: "OperatorProcess") -> Iterator[None]:
    """Kill the operator while the block runs."""
    operator.kill()
    yield
    operator.ensure()


async def test_eight_steps_with_the_operator_killed_at_each(api: "Api", operator: "OperatorProcess") -> None:
    """The life cycle of the KEP: each step happens while the operator is down, and is processed after its restart."""
    waits = {"nodeName": None, "schedulerName": "missing"}
    template = {"metadata": {"labels": {POD_GROUP_LABEL: "leaf"}}, "spec": POD | waits}
    with down(operator):  # 1. A user creates the true workload.
        spec = {"parallelism": 2, "completions": 2, "suspend": True, "template": template}
        owners = owned_by(await api.create("Job", "train", spec))
    with down(operator):  # 2. Its controller creates the Workload
        await api.create("Workload", "w", TEMPLATES, ownerReferences=owners)
    with down(operator):  # 3. and all groups, from the root to the leaves.
        for kind, name, parent in ((CPG, "root", None), (CPG, "mid", "root"), (PG, "leaf", "mid")):
            await api.group(kind, name, parent, ownerReferences=owners)
    await api.until("the tree is protected", lambda: protected(api))
    with down(operator):  # 4. Pods are created.
        await api.merge("Job", "train", {"spec": {"suspend": False}})
        await api.until("there are pods", lambda: some(api, 2))
    await api.until("the root counts them", lambda: counted(api, {"desired": 2, "scheduled": 0, "running": 0}))
    with down(operator):  # 5. The scheduler schedules them.
        for pod in await api.list("Pod"):
            await bind(api.connection, ObjectMeta(name=pod["metadata"]["name"], namespace=api.namespace), "node-1")
        await api.until("the pods run", lambda: running(api, 2))
    await api.until("the root counts them", lambda: counted(api, {"desired": 2, "scheduled": 2, "running": 2}))
    with down(operator):  # 6. The user deletes the true workload.
        await api.delete("Job", "train", policy="Foreground")
        await api.until("it is being deleted", lambda: is_terminating(api, "Job", "train"))
    with down(operator):  # 7. The garbage collector deletes the pods.
        await api.until("the pods are deleted", lambda: some(api, 0))
    with down(operator):  # 8. The groups go, from the leaves to the root.
        await api.until("the groups are being deleted", lambda: is_terminating(api, CPG, "root"))
    await api.until("the tree has gone, leaves first", lambda: gone_leaves_first(api))
    await api.until("the Job is deleted", lambda: none_of(api, "Job"))


async def some(api: "Api", count: int) -> bool:
    """Return whether there are so many pods."""
    return len(await api.list("Pod")) == count


async def counted(api: "Api", pods: dict[str, int]) -> bool:
    """Return whether the root has these counts of pods."""
    root = await api.get(CPG, "root")
    return root is not None and root["status"].get("pods") == pods


async def is_terminating(api: "Api", kind: str, name: str) -> bool:
    """Return whether an object is being deleted, or is deleted."""
    found = await api.get(kind, name)
    return found is None or "deletionTimestamp" in found["metadata"]


def owned_by(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the references by which a Job owns its groups."""
    meta = job["metadata"]
    return [{"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"], "controller": True}]


async def none_of(api: "Api", kind: str) -> bool:
    """Return whether there is no object of a kind."""
    return not await api.list(kind)


async def test_a_namespace_with_a_tree_and_running_pods_is_deleted(api: "Api", operator: "OperatorProcess") -> None:  # noqa: ARG001
    """All objects in it are deleted at once; the finalizers give the order."""
    for name, parent in (("a", None), ("b", "a"), ("c", "b")):
        await api.group(CPG, name, parent)
    for number in range(3):
        await api.group(PG, f"leaf-{number}", "c")
        await api.pod(f"running-{number}", f"leaf-{number}")
        await api.pod(f"pending-{number}", f"leaf-{number}", phase="Pending")
    await api.until("the tree is protected", lambda: protected(api))
    await api.delete("Namespace", api.namespace)
    await api.until("all has gone, leaves first", lambda: gone_leaves_first(api))

    async def vanished() -> bool:
        return await api.get("Namespace", api.namespace) is None

    await api.until("the namespace is deleted", vanished)


@pytest.mark.parametrize("policy", ["Foreground", "Background", "Orphan"])
async def test_children_that_a_group_owns_are_deleted_before_it(
    api: "Api",
    operator: "OperatorProcess",  # noqa: ARG001
    policy: str,
) -> None:
    """Foreground deletion deletes all; the other policies leave the child, and the group waits for it."""
    await api.group(CPG, "root")
    root = await api.get(CPG, "root")
    assert root is not None
    owner = {"apiVersion": root["apiVersion"], "kind": CPG, "name": "root", "uid": root["metadata"]["uid"]}
    await api.group(PG, "leaf", "root", ownerReferences=[owner | {"blockOwnerDeletion": True}])
    await api.pod("member", "leaf")
    await api.until("both are protected", lambda: protected(api))
    await api.delete(CPG, "root", policy=policy)
    await api.until("the root waits", lambda: is_terminating(api, CPG, "root"))
    if policy == "Foreground":
        await api.until("the leaf waits for its pod", lambda: is_terminating(api, PG, "leaf"))
    else:
        await asyncio.sleep(1)
        assert await api.names(CPG, PG) == {"root", "leaf"}
        await api.delete(PG, "leaf")
    await asyncio.sleep(0.5)
    assert await api.names(CPG, PG) == {"root", "leaf"}
    await api.delete("Pod", "member")
    await api.until("the tree has gone, leaves first", lambda: gone_leaves_first(api))


async def test_a_namespace_with_an_instantiated_workload_is_deleted(api: "Api", operator: "OperatorProcess") -> None:  # noqa: ARG001
    """No group can be created in it again, whichever is deleted first; that does not delay the namespace."""
    several = {"podGroupTemplates": [LEAF | {"replicas": 8}]}
    await api.create("Workload", "w", several, annotations={INSTANTIATE: "true"})

    async def made() -> bool:
        return len(await api.list(PG)) == 8 and await protected(api)

    await api.until("its groups are there", made)
    await api.pod("member", "w-leaf-3")
    await api.delete("Namespace", api.namespace)

    async def vanished() -> bool:
        return await api.get("Namespace", api.namespace) is None

    await api.until("the namespace is deleted", vanished)


async def test_a_cycle_and_an_orphan_can_be_deleted(api: "Api", operator: "OperatorProcess") -> None:  # noqa: ARG001
    """Neither has a root."""
    for kind, name, parent in ((CPG, "x", "y"), (CPG, "y", "x"), (CPG, "self", "self"), (PG, "orphan", "missing")):
        await api.group(kind, name, parent)
    await api.until("they are protected", lambda: protected(api))
    await api.delete(CPG, "x", "y", "self")
    await api.delete(PG, "orphan")
    await api.until("they are deleted", lambda: gone(api))


async def test_native_composite_groups_are_protected_and_podgroups_left_to_kubernetes(
    native: "Api",
    operator: "OperatorProcess",  # noqa: ARG001
) -> None:
    """Both are released from the leaves to the root, by two controllers."""
    await native.group(CPG, "root")
    await native.group(PG, "leaf", "root")
    await native.until("the root is protected", lambda: protected(native, CPG))
    (leaf,) = await native.list(PG)
    assert leaf["metadata"]["finalizers"] == ["scheduling.k8s.io/podgroup-protection"]
    await native.create("Pod", "member", POD | {"schedulingGroup": {"podGroupName": "leaf"}})
    await native.until("the pod runs", lambda: running(native, 1))
    await native.delete(CPG, "root")
    await native.delete(PG, "leaf")
    assert await native.names(CPG, PG) == {"root", "leaf"}
    await native.delete("Pod", "member")
    await native.until("the tree has gone, leaves first", lambda: gone_leaves_first(native))


async def test_a_command_removes_our_finalizers_without_the_operator(api: "Api", operator: "OperatorProcess") -> None:
    """The chart runs it after an uninstall; it removes no other finalizer."""
    await api.group(CPG, "root", finalizers=[HOLD])
    await api.group(PG, "leaf", "root")
    await api.until("the tree is protected", lambda: protected(api))
    operator.kill()
    await api.delete(CPG, "root")
    await api.delete(PG, "leaf")
    assert await api.names(CPG, PG) == {"root", "leaf"}
    operator.release()
    assert await api.names(PG) == set()
    (root,) = await api.list(CPG)
    assert root["metadata"]["finalizers"] == [HOLD]
    await api.merge(CPG, "root", {"metadata": {"finalizers": None}})


@pytest.fixture
async def deep(api: "Api", operator: "OperatorProcess") -> AsyncIterator[str]:  # noqa: ARG001  # it ends after the group
    """Create a group with thousands of nested levels, and return the path of its collection.

    The cluster is shared with other tests, so the group is deleted at the end, whatever has become of the test.
    """
    fields = msgspec.Raw(b'{"f:a":' * 1500 + b"{}" + b"}" * 1500)
    version = {"apiVersion": CPG_POD_GROUPS.api_version}
    entry = {**version, "manager": "m", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1"}
    metadata = {"name": "deep", "managedFields": [{**entry, "fieldsV1": fields}]}
    group = {**version, "kind": PG, "metadata": metadata, "spec": {"schedulingPolicy": {"basic": {}}}}
    path = CPG_POD_GROUPS.path(api.namespace)
    try:
        assert (await api.connection.post(path, group)).count(b'"f:a":') == 1500
        yield path
    finally:
        await api.until("the deep group is deleted", lambda: removed(api, f"{path}/deep"))


async def removed(api: "Api", path: str) -> bool:
    """Return whether a group is deleted; otherwise delete it, with all of its finalizers."""
    try:
        await api.connection.delete(path)
        await api.connection.patch(path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
    except ApiError as error:
        if not error.is_not_found:
            raise
        return True
    return False


async def test_a_deeply_nested_group_is_processed_like_any_other(
    api: "Api", operator: "OperatorProcess", deep: str
) -> None:
    """Watches and lists with it work, and so does the command that removes our finalizers."""
    path = deep

    async def is_protected(name: str) -> bool:
        return FINALIZER.encode() in await api.connection.get(f"{path}/{name}")

    await api.until("it is protected", lambda: is_protected("deep"))
    operator.kill()
    operator.ensure()
    await api.group(PG, "other")
    await api.until("a later group is protected", lambda: is_protected("other"))
    await asyncio.sleep(2)
    assert "Kopf has failed" not in operator.log
    operator.kill()
    operator.release()
    assert not await is_protected("deep")
    assert not await is_protected("other")


async def test_the_command_waits_for_replicas_that_take_over(
    api: "Api", operator: "OperatorProcess", cluster: "Cluster", install: "Installer", tmp_path: Path
) -> None:
    """Of two replicas that are stopped one after the other, the second leads for a while; no finalizer is left."""
    operator.kill()
    values = {"scheduler": {"enabled": False}, "operator": {"replicas": 2}, "namespaces": [api.namespace]}
    release = install(cluster, values, f"{api.namespace}-two")
    (job,) = release.of_kind("Job")
    running = Deployments(cluster.access, release.deployments, folder=tmp_path)
    try:
        (pods,) = (await asyncio.to_thread(running.__enter__)).pods.values()
        await api.group(PG, "leaf")
        await api.until("it is protected", lambda: protected(api))
        readiness = [(await asyncio.to_thread(pod.get, "/readyz"))[1] for pod in pods]
        leader, standby = pods if "standing by" in readiness[1] else reversed(pods)
        going = asyncio.create_task(asyncio.to_thread(run_job, cluster.access, job, folder=tmp_path, timeout=60))
        await asyncio.to_thread(leader.stop)
        await asyncio.to_thread(standby.await_ready)
        await asyncio.sleep(3)
        await asyncio.to_thread(standby.stop)
        await going
        (leaf,) = await api.list(PG)
        assert "finalizers" not in leaf["metadata"]
    finally:
        await asyncio.to_thread(running.stop)


async def test_kubectl_alone_removes_our_finalizers(
    api: "Api", operator: "OperatorProcess", cluster: "Cluster"
) -> None:
    """The documented command works, and removes no other finalizer."""
    await api.group(CPG, "root", finalizers=[HOLD, FINALIZER])
    await api.group(PG, "held", "root", finalizers=[FINALIZER, HOLD])
    await api.group(PG, "leaf", "root")
    await api.until("the tree is protected", lambda: protected(api))
    operator.kill()
    (line,) = re.findall(r"```sh\n(kubectl get compositepodgroups.*?)```", DOCUMENT.read_text(), re.DOTALL)
    path = f"{cluster.access.kubectl_path.parent}:{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}
    shell = await asyncio.create_subprocess_exec("/bin/sh", "-ec", line, env=environment)
    assert await shell.wait() == 0
    left = [one["metadata"].get("finalizers") for kind in (CPG, PG) for one in await api.list(kind)]
    assert left == [[HOLD], [HOLD], None]
    await api.merge(CPG, "root", {"metadata": {"finalizers": None}})
    await api.merge(PG, "held", {"metadata": {"finalizers": None}})
