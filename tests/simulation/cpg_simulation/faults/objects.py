"""The faults of objects that a request is about."""

from cpg_client.resources import PODS
from cpg_simulation.apiserver.values import Request
from cpg_simulation.nights.manifests import INNER, LEAVES
from cpg_simulation.nights.plan import Fault, Flavour
from cpg_simulation.world.cluster_client import ClusterClient

KEPT = ("namespace", "name", "labels", "annotations", "ownerReferences")


class ObjectFaults:
    """Replaces objects by others of their names, as ``kubectl replace --force`` does."""

    def __init__(self, client: ClusterClient, flavour: Flavour) -> None:
        """Act on pods and groups through this client."""
        self._client = client
        self._resources = {resource.plural: resource for resource in (PODS, LEAVES[flavour], INNER[flavour])}

    def begin(self, fault: Fault) -> None:
        """Delete an object at once, whatever protects it, and create another one of its name."""
        plural, _, name = fault.target.partition("/")
        resource = self._resources.get(plural)
        found = self._client.get(resource, name) if resource is not None else None
        if resource is None or found is None:
            return
        metadata = {key: value for key, value in found["metadata"].items() if key in KEPT}
        spec = {key: value for key, value in found["spec"].items() if key != "nodeName"}
        self._client.merge(resource, name, {"metadata": {"finalizers": None}})
        self._client.delete(resource, name, grace=0)
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        self._client.create(resource, {**kind, "metadata": metadata, "spec": spec})

    def end(self, fault: Fault) -> None:
        """Leave the new object."""


def object_of(request: Request) -> str:
    """Return the object in a namespace that a request is about, such as ``pods/a``."""
    return "/".join(request.path.partition("/namespaces/")[2].split("/")[1:3])
