"""Our kinds with the Python clients of users: the official one, and pykube-ng."""

from typing import Any

import pykube  # type: ignore[import-untyped]  # it has no types
import pytest
from kubernetes import client, config

from cpg_lab.clusters import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session"), pytest.mark.usefixtures("api")]

API_VERSION = "scheduling.cpg.dev/v1alpha3"


class PodGroup(pykube.objects.NamespacedAPIObject):  # type: ignore[misc]  # its base is of no known type
    """A PodGroup as users of pykube-ng declare it."""

    version = API_VERSION
    endpoint = "podgroups"
    kind = "PodGroup"


def body(name: str) -> dict[str, Any]:
    """Return a gang of three."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    return {
        "apiVersion": API_VERSION,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


async def test_the_official_client_creates_and_reads_groups(cluster: Cluster) -> None:
    """A new object has its defaults, and an invalid one is refused with 422 and the name of the field."""
    config.load_kube_config(config_file=str(cluster.kubeconfig))  # type: ignore[no-untyped-call]  # so it is
    with client.ApiClient() as connection:
        groups = client.CustomObjectsApi(connection)
        place: dict[str, Any] = {
            "group": "scheduling.cpg.dev",
            "version": "v1alpha3",
            "namespace": "default",
            "plural": "podgroups",
        }
        made: Any = groups.create_namespaced_custom_object(**place, body=body("official"))
        assert made["status"]["conditions"][0]["reason"] == "Pending"
        wrong = body("wrong") | {"spec": {"schedulingPolicy": {}}}
        with pytest.raises(client.ApiException) as refused:
            groups.create_namespaced_custom_object(**place, body=wrong)
    assert refused.value.status == 422
    assert "must specify one of: `basic`, `gang`" in str(refused.value.body)


async def test_pykube_creates_patches_and_lists_groups(cluster: Cluster) -> None:
    """A patch changes the minimum of a group, and a list finds the group."""
    connection = pykube.HTTPClient(pykube.KubeConfig.from_file(str(cluster.kubeconfig)))
    group = PodGroup(connection, body("pykube"))
    group.create()
    group.patch({"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}})
    found = {one.name: one.obj for one in PodGroup.objects(connection, namespace="default")}
    assert found["pykube"]["spec"]["schedulingPolicy"] == {"gang": {"minCount": 2}}
