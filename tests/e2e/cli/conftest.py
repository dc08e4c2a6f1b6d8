"""An API server with our scheduler, and situations made on it for real."""

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.cli.situations_reader import manifests

from cpg_api.core.devices import ResourceSlice
from cpg_api.core.node import Node
from cpg_api.core.pod import Pod
from cpg_api.scheduling.forest import Group
from cpg_cli.analysis.changes import ObjectChange
from cpg_cli.root import root
from cpg_client.resources import (
    CPG_COMPOSITE_POD_GROUPS,
    CPG_POD_GROUPS,
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    STATUS,
    Resource,
)
from cpg_engine.testing.api_manifests import group_manifest, node_manifest, pod_manifest
from cpg_lab.blocking_client import BlockingClient
from cpg_lab.clusters import Cluster
from cpg_lab.specs import ClusterSpec

if TYPE_CHECKING:
    from tests.e2e.conftest import Installer

Plain = dict[str, Any]
CLAIM_TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate")
DEVICES = (DEVICE_CLASSES, RESOURCE_SLICES, CLAIM_TEMPLATES, RESOURCE_CLAIMS)
CREATED = (PRIORITY_CLASSES, NODES, *DEVICES, CPG_COMPOSITE_POD_GROUPS, CPG_POD_GROUPS, POD_DISRUPTION_BUDGETS, PODS)
"""The order of creation: groups before pods, so that no attempt is made in between."""
RESOURCES = {one.kind: one for one in CREATED}
CONTROLLERS = ("clusterrole-aggregation-controller", "job-controller", "resourceclaim-controller")
VIEWER = "viewer"
TIMEOUT_SECONDS = 20.0
SECONDS_WITHOUT_CHANGE = 5.0


class Space:
    """A namespace with the objects of a situation, and its nodes."""

    def __init__(self, cluster: Cluster, client: BlockingClient, name: str) -> None:
        """Create the namespace, with a user that may view it and nothing else."""
        self.name = name
        self._cluster, self._client = cluster, client
        self._shared: set[str] = set()
        """The objects of this situation that are in no namespace, as paths."""
        client.create(NAMESPACES.path(), {"metadata": {"name": name}})
        binding = {
            "metadata": {"name": VIEWER},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": VIEWER}],
        }
        client.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings", binding)

    def create_situation(self, situation: str) -> None:
        """Create the objects of a situation."""
        objects = manifests(situation)
        for resource in CREATED:
            for plain in objects:
                if plain["kind"] == resource.kind:
                    self.create(plain)
        if any(plain["kind"] == CLAIM_TEMPLATES.kind for plain in objects):
            self.wait(self._has_claims, "claims that are made from templates")

    def _has_claims(self) -> bool:
        pods = self._client.get(PODS.path(self.name))["items"]
        return all(pod["status"].get("resourceClaimStatuses") for pod in pods)

    def create(self, plain: Plain) -> None:
        """Create an object; priority classes are shared by all situations."""
        resource, name = RESOURCES[plain["kind"]], plain["metadata"]["name"]
        if resource is PRIORITY_CLASSES and self._client.find(resource.path(name=name)) is not None:
            return
        if not resource.namespaced and resource is not PRIORITY_CLASSES:
            self._shared.add(resource.path(name=name))
        if resource is PODS:
            plain.pop("status", None)
            plain["spec"].setdefault("terminationGracePeriodSeconds", 0)
        self._client.create(resource.path(self._namespace(resource)), plain)
        if resource in {POD_DISRUPTION_BUDGETS, RESOURCE_CLAIMS} and "status" in plain:
            self._client.merge(resource.path(self.name, name, STATUS), {"status": plain["status"]})

    def make(self, changes: Sequence[ObjectChange]) -> None:
        """Make changes: objects that change are deleted, and created anew."""
        gone = [change.before for change in changes if change.before is not None]
        for found in gone:
            self._delete(RESOURCES[kind_of(found)], found.metadata.name)
        for level in {one.after.spec.priority for one in changes if not isinstance(one.after, Node | ResourceSlice)} - {
            None
        }:
            self.create({"kind": "PriorityClass", "metadata": {"name": f"level-{level}"}, "value": level})
        for change in sorted(changes, key=lambda one: isinstance(one.after, Pod)):
            self.create(manifest_of(change.after))

    def clear(self) -> None:
        """Delete everything but the namespace."""
        for pod in self._client.get(PODS.path(self.name))["items"]:
            if pod["metadata"].get("finalizers"):
                self._client.merge(PODS.path(self.name, pod["metadata"]["name"]), {"metadata": {"finalizers": None}})
        namespaced = (PODS, CPG_POD_GROUPS, CPG_COMPOSITE_POD_GROUPS, POD_DISRUPTION_BUDGETS, *DEVICES)
        for resource in (one for one in namespaced if one.namespaced):
            self._client.delete(resource.path(self.name), grace=0)
        for path in self._shared:
            self._client.delete(path)
        self._shared.clear()

    def wait(self, until: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        self._cluster.wait(until, TIMEOUT_SECONDS, f"{self.name}: {what}")

    def settled(self, read: Callable[[], str], expected: str) -> str:
        """Return what is read, in the words of the golden files, once it is as expected or does not change for long."""
        deadline, before = time.monotonic() + TIMEOUT_SECONDS, ""
        while (found := read().replace(f"{self.name}/", "default/")) != expected and time.monotonic() < deadline:
            if found != before:
                before, deadline = found, time.monotonic() + SECONDS_WITHOUT_CHANGE
            time.sleep(0.1)
        return found

    def explain(self, target: str, *options: str) -> dict[str, Any]:
        """Return what ``kubectl cpg explain`` answers."""
        found: dict[str, Any] = msgspec.json.decode(self.run("explain", target, "-o", "json", *options))
        return found

    def is_placed(self, target: str) -> bool:
        """Return whether enough pods of a tree have nodes, by its status or because all of them do."""
        found = self.explain(target, "--check-seconds", "0")
        return found["state"] == "Placed" or str(found["summary"]).startswith("has its minimum")

    def run(self, *arguments: str) -> str:
        """Run a command of the command line in this namespace, and return its output."""
        options = ["--kubeconfig", str(self._cluster.kubeconfig), "-n", self.name]
        done = CliRunner().invoke(root, [*arguments, *options], catch_exceptions=False, standalone_mode=False)
        return done.stdout

    def _delete(self, resource: Resource, name: str) -> None:
        path = resource.path(self._namespace(resource), name)
        self._shared.discard(path)
        self._client.delete(path, grace=0)
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while self._client.find(path) is not None:
            assert time.monotonic() < deadline, f"{path} still exists"

    def _namespace(self, resource: Resource) -> str | None:
        return self.name if resource.namespaced else None


def kind_of(found: Node | Pod | ResourceSlice | Group) -> str:
    """Return the kind of an object."""
    return type(found).__name__


def manifest_of(found: Node | Pod | ResourceSlice | Group) -> Plain:
    """Return an object as it is created, without what belongs to an earlier one."""
    match found:
        case Node():
            plain = node_manifest(found)
        case ResourceSlice():
            plain = {"kind": RESOURCE_SLICES.kind, **msgspec.to_builtins(found)}
        case Pod():
            plain = pod_manifest(found, native=False)
            if plain["spec"].pop("priority", 0) and not found.spec.priority_class_name:
                plain["spec"]["priorityClassName"] = f"level-{found.spec.priority}"
            plain["spec"].pop("preemptionPolicy", None)
            plain["spec"]["tolerations"] = [
                one for one in plain["spec"].get("tolerations", ()) if not one.get("key", "").startswith("node.kube")
            ]
        case _:
            plain = group_manifest(found, native=False)
    meta = plain["metadata"]
    plain["metadata"] = {key: meta[key] for key in ("name", "labels", "annotations") if key in meta}
    return plain


@pytest.fixture(scope="module")
def cluster(install: "Installer", tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run an API server with the chart and its scheduler; controllers complete ``view``, and make pods and claims."""
    spec = ClusterSpec(components=("controller-manager",), controllers=CONTROLLERS)
    folder: Path = tmp_path_factory.mktemp("scheduler")
    with Cluster(spec) as running:
        install(running, {"operator": {"enabled": False}})
        with install.scheduler(running, folder):
            yield running


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[BlockingClient]:
    """Return a client of the cluster."""
    with BlockingClient(cluster.access) as connected:
        yield connected


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    """Return numbers that are part of the names of namespaces."""
    return itertools.count()


@pytest.fixture
def space_of(cluster: Cluster, client: BlockingClient, numbers: Iterator[int]) -> Iterator[Callable[[str], Space]]:
    """Return what makes a namespace with a situation, and clears it after the test."""
    made: list[Space] = []

    def make(situation: str) -> Space:
        space = Space(cluster, client, f"{situation}-{next(numbers)}")
        made.append(space)
        space.create_situation(situation)
        return space

    yield make
    for space in made:
        space.clear()
